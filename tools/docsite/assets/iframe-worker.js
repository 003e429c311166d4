// Search in a page that was opened from a disk. Browsers refuse `new Worker("file:...")`, so the
// worker's script runs in a hidden frame, to which messages go as to a worker: later, and copied.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = (this.inside = this.frame.contentWindow);
      inside.postMessage = data => setTimeout(() => this.onmessage?.({ data: structuredClone(data) }));
      const script = inside.document.createElement("script");
      script.src = url;
      this.loaded = new Promise(resolve => (script.onload = resolve));
      script.onerror = () => this.onerror?.(new Event("error", { cancelable: true }));
      inside.document.body.append(script);
    }

    async postMessage(data) {
      await this.loaded;
      this.inside.onmessage({ data: this.inside.structuredClone(data) });
    }

    terminate() {
      this.frame.remove();
    }
  };
}
