// The search runs in a Worker, which browsers refuse to pages opened from disk: there a hidden frame takes its place.
if (location.protocol === "file:") {
  const load = (page, url) =>
    new Promise((resolve, reject) => {
      const script = page.createElement("script");
      Object.assign(script, { src: url, onload: resolve, onerror: reject });
      page.head.append(script);
    });

  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      const shown = new Promise((resolve) => this.frame.addEventListener("load", resolve, { once: true }));
      document.body.append(this.frame);
      this.ready = shown.then(() => {
        const inside = this.frame.contentWindow;
        inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
        inside.importScripts = (...urls) => Promise.all(urls.map((each) => load(inside.document, each)));
        return load(inside.document, url);
      });
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
