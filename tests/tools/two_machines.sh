#!/usr/bin/env bash
# CUT [OPTION...] COMMAND...: runs mpirun's ranks with rank 0 on one simulated machine and the others on a second one:
# two network namespaces with a cable between them, which stops working once the file CUT exists. Needs root and
# iproute2.
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/strict.sh"
if [ "${HT_ON_MACHINE:-}" = "" ]; then
  export HT_ON_MACHINE=first
  exec unshare -n -m --propagation private "${BASH_SOURCE[0]}" "$@"
fi
if [ "$HT_ON_MACHINE" = first ]; then
  cut=$1
  shift
  mkdir -p /run/netns && mount -t tmpfs none /run/netns
  ip netns add second && ip link set lo up && ip -n second link set lo up
  ip link add cable type veth peer name cable netns second
  ip addr add 10.77.0.1/24 dev cable && ip link set cable up
  ip -n second addr add 10.77.0.2/24 dev cable && ip -n second link set cable up
  # Frames go to an address that does not exist, so neither side notices.
  (
    until [ -e "$cut" ]; do sleep 0.05; done
    ip neigh replace 10.77.0.2 lladdr 02:00:00:00:00:77 dev cable nud permanent
    ip -n second neigh replace 10.77.0.1 lladdr 02:00:00:00:00:77 dev cable nud permanent
  ) &
  export HT_ON_MACHINE=second
  code=0
  mpirun --host localhost:1,10.77.0.2:2 -np 3 --bind-to none --mca plm_rsh_agent "${BASH_SOURCE[0]}" --mca oob_tcp_if_include 10.77.0.0/24 --mca btl tcp,self \
    --mca btl_tcp_if_include 10.77.0.0/24 "$@" || code=$?
  kill %1 2>/dev/null || true
  exit "$code"
fi
shift # mpirun's agent: HOST COMMAND...
exec ip netns exec second bash -c "$*"
