// Search without a server: a browser starts no Worker from a file, so the search runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      const here = this
      window.addEventListener("message", event => {
        if (event.source === frame.contentWindow)
          here.dispatchEvent(new MessageEvent("message", { data: event.data }))
      })
      const page = "<script>self.postMessage = data => parent.postMessage(data, '*')<\/script>"
        + `<script src="${new URL(url, document.baseURI)}"><\/script>`
      this.loaded = new Promise(resolve => frame.addEventListener("load", resolve))
      this.frame = frame
      frame.srcdoc = page
      document.documentElement.append(frame)
    }
    postMessage(data) {
      this.loaded.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })))
    }
    terminate() {
      this.frame.remove()
    }
  }
}
