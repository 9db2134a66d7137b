// Follows a run by server-sent events: each message is a line of metrics.jsonl, `reset` contains all curves, and `parts` contains HTML,
// keyed by the ids of elements.
'use strict';
(() => {
  const kMostEvents = 300;
  const phases = ['warmup', 'full', 'predict', 'correct'];
  let feed = JSON.parse(document.getElementById('feed').textContent);
  let source = null, due = false;
  let pending = [];  // records that are not drawn yet

  // Drawing many steps at once costs as much as drawing one.
  function drawSoon() {
    if (due) return;
    due = true;
    setTimeout(() => requestAnimationFrame(() => {
      due = false;
      pending.forEach(add);
      pending = [];
      window.report.changed();
    }), 250);
  }

  const last = (list) => list[list.length - 1];
  function kindsOf(data, record) {
    const names = Object.keys(record.live_bytes);
    for (const name of names) {
      const used = record.live_bytes[name] + record.peak_bytes[name] > 0;
      if (!used || data.kinds.some((kind) => kind.name === name)) continue;
      const zeros = data.step.map(() => 0);
      data.kinds.push({ name, live: zeros, peak: [...zeros] });
    }
    data.kinds.sort((a, b) => names.indexOf(a.name) - names.indexOf(b.name));
    return data.kinds;
  }

  // Adds a record as a new point, or to the last point if points have several steps.
  function addPoint(data, record) {
    const kinds = kindsOf(data, record), end = data.step.length - 1;
    if (end >= 0 && data.stepsInLast < data.stepsPerPoint) {
      const before = data.stepsInLast++;
      data.step[end] = record.step;
      data.seconds[end] += record.seconds;
      data.tokens[end] += record.tokens;
      data.host[end] = Math.max(data.host[end], record.host_bytes);
      for (const kind of kinds) {
        kind.live[end] = Math.max(kind.live[end], record.live_bytes[kind.name]);
        kind.peak[end] = Math.max(kind.peak[end], record.peak_bytes[kind.name]);
      }
      if (record.loss === null) return;
      data.loss[end] = data.loss[end] === null ? record.loss : (data.loss[end] * before + record.loss) / (before + 1);
      if (data.low) data.low[end] = Math.min(data.low[end] ?? record.loss, record.loss);
      if (data.high) data.high[end] = Math.max(data.high[end] ?? record.loss, record.loss);
      return;
    }
    data.stepsInLast = 1;
    data.step.push(record.step);
    data.seconds.push(record.seconds);
    data.tokens.push(record.tokens);
    data.loss.push(record.loss);
    data.host.push(record.host_bytes);
    data.phase.push(record.phase);
    if (data.low) data.low.push(record.loss);
    if (data.high) data.high.push(record.loss);
    for (const kind of kinds) {
      kind.live.push(record.live_bytes[kind.name]);
      kind.peak.push(record.peak_bytes[kind.name]);
    }
  }

  function add(record) {
    const data = window.report.data();
    if (data.step.length && record.step <= last(data.step)) return;
    addPoint(data, record);
    data.unit = record.effective_batch > 0 && record.tokens === record.effective_batch ? 'examples' : 'tokens';
    if (!data.phases.includes(record.phase))
      data.phases = phases.filter((phase) => phase === record.phase || data.phases.includes(phase));
    const band = last(data.bands);
    if (band && band[0] === record.phase) band[2] = record.step;
    else data.bands.push([record.phase, record.step, record.step]);
    for (const [marks, value] of [[data.validation, record.validation_loss], [data.predicted, record.predicted_loss],
      [data.errors, record.prediction_error]]) {
      if (value !== null && value !== undefined) marks.push([record.step, value]);
    }
    if (record.event) {
      const decision = record.decision ? [record.decision, record.kept_fraction] : [];
      data.events.push([record.step, record.phase, record.event, record.warns, ...decision]);
      data.allEvents++;
      if (data.events.length > kMostEvents) data.events.shift();
    }
  }

  function showParts(parts) {
    for (const [id, html] of Object.entries(parts)) {
      const element = document.getElementById(id);
      if (element) element.innerHTML = html;
    }
  }

  function connect() {
    source = new EventSource(`events?generation=${encodeURIComponent(feed.generation)}&after=${feed.step}`);
    const connection = document.getElementById('connection');
    source.onopen = () => { connection.hidden = true; };
    source.onmessage = (event) => {
      pending.push(JSON.parse(event.data));
      feed.step = Number(event.lastEventId);
      drawSoon();
    };
    source.addEventListener('parts', (event) => showParts(JSON.parse(event.data)));
    source.addEventListener('reset', (event) => {
      const next = JSON.parse(event.data), isOther = next.generation !== feed.generation;
      feed = { generation: next.generation, step: next.step };
      pending = [];
      window.report.take(next.curves);
      if (!isOther) return;
      source.close();  // if it reconnected, it would ask for steps after the previous records
      connect();
    });
    source.onerror = () => {
      connection.hidden = false;
      if (source.readyState !== EventSource.CLOSED) return;  // it reconnects automatically
      setTimeout(connect, 2000);
    };
  }
  connect();
})();
