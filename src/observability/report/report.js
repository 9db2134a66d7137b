// Draws the report from the JSON in #data. window.report receives later data. Columns have one entry per point, which stands for `stepsPerPoint` steps. Keys:
//   unit (that tokens counts), stepsPerPoint, stepsInLast (steps of the last point, which may have fewer), step (the last step of a point), seconds, tokens, loss, low and high (if a point has several steps), host (bytes),
//   kinds [{name, live, peak}] (bytes), phase (of most steps of a point), phases (all that occur),
//   bands [[phase, first step, last step]], validation and predicted [[step, loss]],
//   errors [[step, error of predicted updates relative to the exact updates]], events [[step, phase, text]] (the last of allEvents);
//   an event that decided on a prediction is [step, phase, text, decision, share of the change that was kept].
'use strict';
(() => {
  let data, count, elapsed;  // elapsed: seconds up to the end of each point
  function measure() {
    let total = 0;
    count = data.step.length;
    elapsed = data.seconds.map((seconds) => (total += seconds));
  }
  const shown = { axis: 'step', memory: 'peak' };
  const charts = [];

  // Formats numbers for people.
  const grouped = (value) => Math.round(value).toLocaleString('en-US');
  const round = (value, digits) => (value === null || value === undefined ? '–' : value.toFixed(digits));
  function scaled(value, units, base) {
    let unit = 0;
    while (value >= base && unit + 1 < units.length) { value /= base; unit++; }
    return `${value >= 100 ? Math.round(value) : +value.toPrecision(3)}${units[unit]}`;
  }
  const bytes = (value) => scaled(value, [' B', ' kB', ' MB', ' GB', ' TB'], 1000);
  const brief = (value) => scaled(value, ['', 'k', 'M', 'G'], 1000);
  const stepLabel = (value) => (value < 100000 ? grouped(value) : brief(value));
  function duration(seconds) {
    if (seconds < 60) return `${+seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
    const minutes = Math.floor(seconds / 60);
    if (minutes < 60) return `${minutes} min${seconds % 60 >= 1 ? ` ${Math.floor(seconds % 60)} s` : ''}`;
    return `${Math.floor(minutes / 60)} h${minutes % 60 ? ` ${minutes % 60} min` : ''}`;
  }
  const words = (name) => name.replaceAll('_', ' ');
  // Escapes text for an element or a quoted attribute. All strings of a run pass through it.
  const signs = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' };
  const escaped = (text) => String(text).replace(/[&<>"']/g, (sign) => signs[sign]);
  const colourOf = (phase) => `var(--${escaped(phase)})`;

  // Horizontal extent: a point reaches from the end of the previous point to its own end.
  const ends = () => (shown.axis === 'step' ? data.step : elapsed);
  const start = () => (shown.axis === 'step' ? Math.max(0, data.step[0] - data.stepsPerPoint) : 0);
  const begin = (i) => (i > 0 ? ends()[i - 1] : start());
  function pointOf(step) {
    let low = 0, high = count - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (data.step[middle] < step) low = middle + 1; else high = middle;
    }
    return low;
  }
  // Returns the end of a step on the axis. On the time axis, the steps of a point share its time equally.
  function place(step) {
    if (shown.axis === 'step') return step;
    const i = pointOf(step), before = i > 0 ? data.step[i - 1] : data.step[0] - data.stepsPerPoint;
    return begin(i) + (elapsed[i] - begin(i)) * Math.max(0, (step - before) / (data.step[i] - before));
  }
  function nearest(value) {
    const xs = ends();
    let low = 0, high = count - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (xs[middle] < value) low = middle + 1; else high = middle;
    }
    return low > 0 && value - xs[low - 1] < xs[low] - value ? low - 1 : low;
  }

  // Returns the distance between ticks: 1, 2 or 5 times a power of ten, or a distance usual on clocks.
  function tickSize(span, most, clock) {
    const wanted = span / Math.max(1, most);
    if (clock) {
      const sizes = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
      for (const size of sizes) if (size >= wanted && wanted > 0.5) return size;
    }
    const power = 10 ** Math.floor(Math.log10(wanted));
    for (const factor of [1, 2, 5]) if (factor * power >= wanted) return factor * power;
    return 10 * power;
  }
  function ticks(low, high, most, clock = false) {
    const size = tickSize(high - low || 1, most, clock);
    const list = [];
    for (let i = Math.ceil(low / size - 1e-9); i * size <= high + size * 1e-9; i++) list.push(i * size || 0);
    return { list, size };
  }
  const decimals = (size) => Math.max(0, -Math.floor(Math.log10(size) + 1e-9));

  function quantile(values, share) {
    const sorted = values.filter((value) => value !== null).sort((a, b) => a - b);
    return sorted.length ? sorted[Math.round(share * (sorted.length - 1))] : 0;
  }

  // Returns the exponential mean, forwards and then backwards, so that the curve does not lag.
  function smoothed(values) {
    const weight = 1 / Math.max(2, Math.min(16, values.length / 80));
    const pass = (list) => {
      let mean = null;
      return list.map((value) => {
        if (value !== null) mean = mean === null ? value : mean + weight * (value - mean);
        return mean;
      });
    };
    return pass(pass(values).reverse()).reverse();
  }
  // Returns tokens or examples per second over a window of neighboring points.
  function meanSpeed() {
    const reach = Math.max(2, Math.round(count / 24));
    const rates = [];
    for (let i = 0; i < count; i++) {
      let tokens = 0, seconds = 0;
      for (let j = Math.max(0, i - reach); j <= Math.min(count - 1, i + reach); j++) {
        tokens += data.tokens[j];
        seconds += data.seconds[j];
      }
      rates.push(seconds > 0 ? tokens / seconds : 0);
    }
    return rates;
  }

  // The following functions return SVG text of curves; x and y convert values to pixels.
  const at = (value) => value.toFixed(1);
  function line(xs, ys, x, y, style) {
    let path = '', pen = 'M';
    ys.forEach((value, i) => {
      if (value === null) { pen = 'M'; return; }
      path += `${pen}${at(x(xs[i]))} ${at(y(value))}`;
      pen = 'L';
    });
    return `<path d="${path}" fill="none" stroke-linejoin="round" ${style}/>`;
  }
  // Returns one horizontal step per point at the upper height or, with `lower`, the area between both heights.
  function stairs(lower, upper, x, y, style) {
    let out = '', back = '';
    for (let i = 0; i < count; i++) {
      const left = at(x(begin(i))), right = at(x(ends()[i]));
      out += `${i ? 'L' : 'M'}${left} ${at(y(upper[i]))}L${right} ${at(y(upper[i]))}`;
      if (lower) back = `L${right} ${at(y(lower[i]))}L${left} ${at(y(lower[i]))}` + back;
    }
    return `<path d="${out}${lower ? back + 'Z' : ''}" ${style}/>`;
  }
  // Draws a strip for each sequence of a phase, and a tint below the curves if `tint` is set.
  function bandsOf(box, x, tint) {
    return data.bands.map(([phase, first, last]) => {
      const left = x(place(first - 1)), width = Math.max(0.6, x(place(last)) - left);
      const rect = (top, height, opacity) => `<rect x="${at(left)}" width="${width.toFixed(2)}" y="${at(top)}" ` +
        `height="${at(height)}" fill="${colourOf(phase)}" fill-opacity="${opacity}"/>`;
      const gap = `<rect x="${at(left)}" width="${width.toFixed(2)}" y="${at(box.top + box.height - 6.5)}" ` +
        'height="1.5" fill="var(--card)"/>';
      return (tint ? rect(box.top, box.height - 5, 0.12) : gap) + rect(box.top + box.height - 5, 5, 0.9);
    }).join('');
  }

  function axes(box, x, y, plot) {
    const rows = ticks(plot.low, plot.high, box.height / 34);
    let out = '';
    for (const value of rows.list) {
      out += `<line class="grid" x1="${box.left}" x2="${box.left + box.width}" y1="${at(y(value))}" y2="${at(y(value))}"/>` +
        `<text x="${box.left - 7}" y="${at(y(value) + 4)}" text-anchor="end">${plot.label(value, rows.size)}</text>`;
    }
    const clock = shown.axis === 'time';
    const columns = ticks(start(), ends()[count - 1], box.width / (clock ? 90 : 80), clock);
    const bottom = box.top + box.height;
    for (const value of columns.list) {
      const label = clock ? duration(value) : stepLabel(value);
      out += `<line class="axis" x1="${at(x(value))}" x2="${at(x(value))}" y1="${bottom}" y2="${bottom + 4}"/>` +
        `<text x="${at(x(value))}" y="${bottom + 17}" text-anchor="middle">${label}</text>`;
    }
    const name = clock ? 'time spent in steps' : 'step';
    return out + `<line class="axis" x1="${box.left}" x2="${box.left + box.width}" y1="${bottom}" y2="${bottom}"/>` +
      `<text x="${box.left + box.width / 2}" y="${bottom + 33}" text-anchor="middle">${name}</text>`;
  }

  // Content of each chart: range of heights, tick labels, curves, legend and read-out.
  function lossChart() {
    const mean = smoothed(data.loss);
    const late = data.validation.slice(data.validation.length >> 1).map((mark) => mark[1]);
    const most = Math.max(quantile(data.loss, count < 60 ? 1 : 0.985), ...late);
    const least = Math.min(quantile(data.loss, 0.003), ...late);
    const pad = (most - least || 1) * 0.06;
    const predicted = new Map(data.predicted.map(([step, value]) => [pointOf(step), value]));
    const validation = new Map(data.validation.map(([step, value]) => [pointOf(step), value]));
    return {
      low: least - pad, high: most + pad,
      label: (value, size) => value.toFixed(decimals(size)),
      curves(x, y) {
        const xs = ends();
        const spread = data.low
          ? stairs(data.low.map((v) => v ?? most), data.high.map((v) => v ?? most), x, y, 'fill="var(--raw)" fill-opacity="0.6"') : '';
        const dots = data.predicted.map(([step, value]) =>
          `<circle cx="${at(x(place(step)))}" cy="${at(y(value))}" r="1.7" fill="var(--predicted)" fill-opacity="0.65"/>`);
        const marks = data.validation.map(([step, value]) => `<circle cx="${at(x(place(step)))}" cy="${at(y(value))}" ` +
          `r="${data.validation.length > 100 ? 2 : 3.5}" fill="var(--validation)" stroke="var(--card)"/>`);
        return spread + (data.low ? '' : line(xs, data.loss, x, y, 'stroke="var(--raw)" stroke-width="1" ')) +
          dots.join('') + line(xs, mean, x, y, 'stroke="var(--line)" stroke-width="2"') +
          line(data.validation.map((mark) => place(mark[0])), data.validation.map((mark) => mark[1]), x, y,
            'stroke="var(--validation)" stroke-opacity="0.5" stroke-width="1.5"') + marks.join('');
      },
      legend: [['line', 'var(--raw)', data.low ? 'training, lowest to highest' : 'training'], ['line', 'var(--line)', 'smoothed'],
        ...(data.validation.length ? [['dot', 'var(--validation)', 'validation']] : []),
        ...(data.predicted.length ? [['dot', 'var(--predicted)', 'predicted']] : []), ...phaseLegend()],
      readout: (i) => [['loss', round(data.loss[i], 4)], ['smoothed', round(mean[i], 4)],
        ...(predicted.has(i) ? [['predicted', round(predicted.get(i), 4)]] : []),
        ...(validation.has(i) ? [['validation', round(validation.get(i), 4)]] : [])],
    };
  }
  function errorChart() {
    const errors = new Map(data.errors.map(([step, value]) => [pointOf(step), value]));
    return {
      low: 0, high: Math.max(...data.errors.map((mark) => mark[1])) * 1.1 || 1,
      label: (value, size) => value.toFixed(decimals(size)),
      curves: (x, y) => data.errors.map(([step, value]) =>
        `<circle cx="${at(x(place(step)))}" cy="${at(y(value))}" r="1.7" fill="var(--predicted)"/>`).join(''),
      legend: [['dot', 'var(--predicted)', 'a step'], ...phaseLegend()],
      readout: (i) => (errors.has(i) ? [['error', round(errors.get(i), 4)]] : []),
    };
  }
  function speedChart() {
    const rates = data.tokens.map((tokens, i) => (data.seconds[i] > 0 ? tokens / data.seconds[i] : null));
    const mean = meanSpeed();
    return {
      low: 0, high: quantile(rates, 0.995) * 1.1 || 1, label: brief,
      curves(x, y) {
        const dots = rates.map((rate, i) => (rate === null ? '' :
          `<circle cx="${at(x((begin(i) + ends()[i]) / 2))}" cy="${at(y(rate))}" r="1.7" fill="${colourOf(data.phase[i])}"/>`));
        return dots.join('') + line(ends(), mean, x, y, 'stroke="var(--card)" stroke-width="4"') +
          line(ends(), mean, x, y, 'stroke="var(--ink)" stroke-width="1.6"');
      },
      legend: [['line', 'var(--ink)', 'mean around'],
        ...data.phases.map((phase) => ['dot', colourOf(phase), `${phase} step`])],
      readout: (i) => [[`${data.unit}/s`, rates[i] === null ? '–' : grouped(rates[i])], ['mean around', grouped(mean[i])],
        ['a step', `${(data.seconds[i] / data.stepsPerPoint * 1000).toPrecision(3)} ms`]],
    };
  }
  function memoryChart() {
    const heights = [new Array(count).fill(0)];
    for (const kind of data.kinds) {
      const below = heights[heights.length - 1];
      heights.push(kind[shown.memory].map((value, i) => value + below[i]));
    }
    const device = heights[heights.length - 1];
    const hasHost = data.host.some((value) => value > 0);
    const most = device.reduce((a, b) => Math.max(a, b), data.host.reduce((a, b) => Math.max(a, b), 0));
    return {
      low: 0, high: most * 1.08 || 1, label: bytes,
      curves: (x, y) => data.kinds.map((kind, k) =>
        stairs(heights[k], heights[k + 1], x, y, `fill="var(--k${k})" fill-opacity="0.9"`)).join('') +
        (hasHost ? stairs(null, data.host, x, y, 'fill="none" stroke="var(--host)" stroke-width="1.4"') : ''),
      legend: [...data.kinds.map((kind, k) => ['box', `var(--k${k})`, words(kind.name)]),
        ...(hasHost ? [['line', 'var(--host)', 'host memory']] : []), ...phaseLegend()],
      readout: (i) => [...data.kinds.filter((kind) => kind[shown.memory][i] > 0)
        .map((kind) => [words(kind.name), bytes(kind[shown.memory][i])]).reverse(),
        ['all kinds', bytes(device[i])], ...(hasHost ? [['host', bytes(data.host[i])]] : [])],
    };
  }
  const phaseLegend = () => data.phases.map((phase) => ['box', colourOf(phase), phase]);

  const phaseText = (phase) => `<i class="phase ${escaped(phase)}"></i>${escaped(phase)}`;

  function legendText([shape, colour, text]) {
    const forms = {
      line: `<path d="M0 6H16" stroke="${colour}" stroke-width="2.4"/>`,
      dot: `<circle cx="8" cy="6" r="3.4" fill="${colour}"/>`,
      box: `<rect x="3" y="1" width="10" height="10" rx="2.5" fill="${colour}"/>`,
    };
    return `<span><svg width="16" height="12" aria-hidden="true">${forms[shape]}</svg>${escaped(text)}</span>`;
  }

  function addChart(id, describe) {
    const host = document.getElementById(id);
    const readout = document.createElement('div');
    readout.className = 'readout';
    readout.hidden = true;
    const chart = { id, describe, pointer: null };
    chart.draw = () => {
      const plot = (chart.plot = describe());
      const width = Math.max(120, host.clientWidth), height = host.clientHeight;  // the size is 0 while the page closes
      const rows = ticks(plot.low, plot.high, (height - 44) / 34);
      const widest = Math.max(...rows.list.map((value) => String(plot.label(value, rows.size)).length), 2);
      const left = Math.round(widest * 6.6 + 12);
      const box = (chart.box = { left, top: 8, width: width - left - 12, height: height - 44 });
      const from = start(), span = ends()[count - 1] - from || 1;
      const x = (chart.x = (value) => box.left + ((value - from) / span) * box.width);
      const y = (value) => box.top + box.height - ((value - plot.low) / (plot.high - plot.low)) * box.height;
      chart.valueAt = (pixel) => from + ((pixel - box.left) / box.width) * span;
      host.innerHTML = `<svg role="img" aria-label="${id} over the run" viewBox="0 0 ${width} ${height}">` +
        `<clipPath id="${id}-clip"><rect x="${box.left}" y="${box.top}" width="${box.width + 5}" height="${box.height}"/></clipPath>` +
        `<g clip-path="url(#${id}-clip)">${id === 'memory' ? '' : bandsOf(box, x, true)}</g>${axes(box, x, y, plot)}` +
        `<g clip-path="url(#${id}-clip)">${plot.curves(x, y)}${id === 'memory' ? bandsOf(box, x, false) : ''}</g>` +
        `<line class="cross" y1="${box.top}" y2="${box.top + box.height}" visibility="hidden"/></svg>`;
      host.append(readout);
      document.getElementById(`${id}-legend`).innerHTML = plot.legend.map(legendText).join('');
      if (chart.pointer !== null) hover();
    };
    chart.cross = (i) => {
      const cross = host.querySelector('.cross');
      cross.setAttribute('visibility', i < 0 ? 'hidden' : 'visible');
      if (i < 0) { readout.hidden = true; return; }
      cross.setAttribute('x1', chart.x(ends()[i]));
      cross.setAttribute('x2', chart.x(ends()[i]));
    };
    const hover = (event = null) => {
      if (event) chart.pointer = event.clientX;
      const i = nearest(chart.valueAt(chart.pointer - host.getBoundingClientRect().left));
      for (const other of charts) other.cross(i);
      const rows = chart.plot.readout(i).map(([name, value]) => `<div><span>${escaped(name)}</span>${escaped(value)}</div>`);
      const steps = data.stepsPerPoint > 1 && i > 0 ? `${grouped(data.step[i - 1] + 1)}–` : '';
      readout.innerHTML = `<b>step ${steps}${grouped(data.step[i])}</b><div><span>${duration(elapsed[i])}</span>` +
        `<span>${phaseText(data.phase[i])}</span></div>${rows.join('')}`;
      readout.hidden = false;
      const cross = chart.x(ends()[i]), size = readout.offsetWidth;
      readout.style.left = `${cross + size + 20 < host.clientWidth ? cross + 12 : Math.max(0, cross - size - 12)}px`;
    };
    host.addEventListener('pointermove', hover);
    host.addEventListener('pointerdown', hover);
    host.addEventListener('pointerleave', () => { chart.pointer = null; for (const other of charts) other.cross(-1); readout.hidden = true; });
    new ResizeObserver(() => chart.draw()).observe(host);
    charts.push(chart);
  }

  const marks = { accepted: ['good', '✓'], shrunk: ['', '◐'], reverted: ['bad', '✗'] };
  function decisionMark(decision, kept) {
    const mark = document.createElement('span'), [colour, sign] = marks[decision];
    mark.className = colour;
    mark.textContent = `${sign} `;
    mark.title = `${decision}: kept ${Math.round(100 * kept)} % of the predicted change`;
    return mark;
  }
  function listEvents() {
    const list = document.getElementById('events');
    document.getElementById('events-card').hidden = !data.events.length;
    list.replaceChildren();
    document.getElementById('events-count').textContent = data.events.length < data.allEvents
      ? `the last ${data.events.length} of ${grouped(data.allEvents)}` : grouped(data.allEvents);
    for (const [step, phase, text, warns, decision, kept] of data.events) {
      const item = list.appendChild(document.createElement('li'));
      item.innerHTML = `<span>${grouped(step)}</span><span>${phaseText(phase)}</span><span></span>`;
      if (warns) item.lastChild.className = 'bad';
      if (decision) item.lastChild.append(decisionMark(decision, kept));
      item.lastChild.append(text);
    }
  }

  for (const group of document.querySelectorAll('[data-switch]')) {
    group.addEventListener('click', (event) => {
      const button = event.target.closest('button');
      if (!button) return;
      shown[group.dataset.switch] = button.dataset.value;
      for (const other of group.children) other.setAttribute('aria-pressed', other === button);
      if (count) changed();
    });
  }
  const kinds = [['loss', lossChart], ['errors', errorChart], ['speed', speedChart], ['memory', memoryChart]];
  // Draws the charts that have data, and adds charts as soon as they have data.
  function changed() {
    measure();
    for (const element of document.querySelectorAll('.unit')) element.textContent = data.unit;
    if (data.unit === 'examples') document.getElementById('target').textContent = 'mean over examples';
    listEvents();
    document.getElementById('errors-card').hidden = !data.errors.length;
    if (!count) return;
    for (const [id, describe] of kinds) {
      const chart = charts.find((other) => other.id === id);
      if (id === 'errors' && !data.errors.length) continue;
      if (chart) chart.draw(); else addChart(id, describe);
    }
  }
  function take(curves) {
    data = curves;
    changed();
  }
  take(JSON.parse(document.getElementById('data').textContent));
  window.report = { take, changed, data: () => data };
})();
