// Search in pages that were opened from disk: browsers start no Worker there, so a hidden frame runs its script.
// Only what the search of this site needs: no transfer of objects, no importScripts.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.appendChild(this.frame)
      this.inner = this.frame.contentWindow
      this.ready = new Promise((resolve, reject) => {
        const script = this.inner.document.createElement("script")
        script.src = url
        script.onload = resolve
        script.onerror = reject
        // The script speaks to whoever started it, as in a Worker.
        this.inner.postMessage = (data) => this.receive(data)
        this.inner.document.body.appendChild(script)
      })
    }

    receive(data) {
      const event = new MessageEvent("message", { data })
      this.dispatchEvent(event)
      if (this.onmessage) this.onmessage(event)
    }

    postMessage(data) {
      this.ready.then(() => this.inner.dispatchEvent(new this.inner.MessageEvent("message", { data })))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
