// Updates the table of runs by server-sent events.
'use strict';
(() => {
  const connection = document.getElementById('connection');
  function connect() {
    const source = new EventSource('events');
    source.onopen = () => { connection.hidden = true; };
    source.addEventListener('parts', (event) => {
      for (const [id, html] of Object.entries(JSON.parse(event.data))) document.getElementById(id).innerHTML = html;
    });
    source.onerror = () => {
      connection.hidden = false;
      if (source.readyState === EventSource.CLOSED) setTimeout(connect, 2000);
    };
  }
  connect();
})();
