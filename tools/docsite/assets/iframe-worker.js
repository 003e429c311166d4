// Search in a page that was opened from a disk. Browsers refuse `new Worker("file:...")`, so the
// worker's script runs in a hidden frame, which sees messages as a worker does.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = data => this.onmessage?.({ data });
      const script = inside.document.createElement("script");
      script.src = url;
      script.onload = () => this.start(inside);
      script.onerror = () => this.onerror?.(new Event("error", { cancelable: true }));
      inside.document.body.append(script);
    }

    start(inside) {
      this.inside = inside;
      this.waiting.forEach(data => this.postMessage(data));
    }

    postMessage(data) {
      if (this.inside) this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data }));
      else this.waiting.push(data);
    }

    terminate() {
      this.frame.remove();
    }
  };
}
