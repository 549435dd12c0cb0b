// Image input: from a file, the clipboard, drag and drop, or a drawing; as base64 of an image file.

const DRAWN = 280; // pixels of the drawing area
const LARGEST = 1024; // larger images are scaled down here, because no model reads more

export class Pad {
  constructor(root, changed) {
    this.canvas = root.querySelector("canvas");
    this.ink = this.canvas.getContext("2d", { willReadFrequently: true });
    this.changed = changed;
    this.size = [DRAWN, DRAWN];
    this.picture = false; // whether the canvas shows an image instead of a drawing
    this.paper = "#000"; // background of a drawing; photos are shown on white
    const drop = root.querySelector(".drop");
    root.querySelector("input[type=file]").addEventListener("change", (event) => {
      this.take(event.target.files[0]);
      event.target.value = "";
    });
    root.querySelector(".clear").addEventListener("click", () => { this.empty(); this.changed(""); });
    for (const name of ["dragover", "dragenter"]) {
      drop.addEventListener(name, (event) => { event.preventDefault(); drop.classList.add("over"); });
    }
    drop.addEventListener("dragleave", () => drop.classList.remove("over"));
    drop.addEventListener("drop", (event) => {
      event.preventDefault();
      drop.classList.remove("over");
      this.take(event.dataTransfer.files[0]);
    });
    root.addEventListener("paste", (event) => this.take(event.clipboardData.files[0]));
    this.listen();
    this.empty();
  }

  listen() {
    let last = null;
    const at = (event) => {
      const box = this.canvas.getBoundingClientRect();
      return [(event.clientX - box.left) * (this.canvas.width / box.width), (event.clientY - box.top) * (this.canvas.height / box.height)];
    };
    this.canvas.addEventListener("pointerdown", (event) => {
      if (this.picture) this.empty();
      this.canvas.setPointerCapture(event.pointerId);
      last = at(event);
      this.line(last, last);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (!last) return;
      const next = at(event);
      this.line(last, next);
      last = next;
    });
    for (const name of ["pointerup", "pointercancel"]) {
      this.canvas.addEventListener(name, () => {
        if (last) this.changed(this.content());
        last = null;
      });
    }
  }

  line([x1, y1], [x2, y2]) {
    Object.assign(this.ink, { strokeStyle: this.pen, lineWidth: DRAWN / 9, lineCap: "round" });
    this.ink.beginPath();
    this.ink.moveTo(x1, y1);
    this.ink.lineTo(x2, y2);
    this.ink.stroke();
  }

  empty() {
    this.picture = false;
    Object.assign(this.canvas, { width: DRAWN, height: DRAWN });
    this.ink.fillStyle = this.paper;
    this.ink.fillRect(0, 0, DRAWN, DRAWN);
  }

  get pen() {
    return this.paper === "#000" ? "#fff" : "#000";
  }

  // Models with one channel read white ink on black, like scanned digits; color models read photos.
  suit(channels) {
    const paper = channels === 1 ? "#000" : "#fff";
    this.canvas.classList.toggle("photo", paper === "#fff");
    if (paper === this.paper) return;
    this.paper = paper;
    if (!this.picture) this.empty();
  }

  // Draw a character like handwriting.
  letter(character) {
    this.empty();
    const style = (size) => Object.assign(this.ink, { fillStyle: this.pen, font: `${size}px sans-serif`, textAlign: "center", textBaseline: "alphabetic" });
    style(DRAWN);
    const tall = this.ink.measureText(character);
    style((0.96 * DRAWN * DRAWN) / Math.max(tall.actualBoundingBoxAscent + tall.actualBoundingBoxDescent, tall.width));
    const box = this.ink.measureText(character);
    const middle = (box.actualBoundingBoxAscent - box.actualBoundingBoxDescent) / 2;
    this.ink.fillText(character, DRAWN / 2, DRAWN / 2 + middle);
    return this.content();
  }

  // Draw a sky, a sun and a hill.
  landscape() {
    this.empty();
    const sky = this.ink.createLinearGradient(0, 0, 0, DRAWN);
    sky.addColorStop(0, "#4a90d9");
    sky.addColorStop(1, "#f3e3c3");
    const paint = (style, draw) => {
      this.ink.fillStyle = style;
      this.ink.beginPath();
      draw();
      this.ink.fill();
    };
    paint(sky, () => this.ink.rect(0, 0, DRAWN, DRAWN));
    paint("#ffd34d", () => this.ink.arc(0.7 * DRAWN, 0.3 * DRAWN, 0.12 * DRAWN, 0, 2 * Math.PI));
    paint("#3f7d3a", () => this.ink.ellipse(0.35 * DRAWN, DRAWN, 0.75 * DRAWN, 0.4 * DRAWN, 0, 0, 2 * Math.PI));
    this.picture = true;
    return this.content();
  }

  // The image as base64, small enough for a link: for a model that reads 8 pixels, 32 pixels.
  content() {
    const most = Math.min(LARGEST, Math.max(32, 2 * Math.max(...this.size)));
    const scale = Math.min(1, most / Math.max(this.canvas.width, this.canvas.height));
    const small = document.createElement("canvas");
    small.width = Math.max(1, Math.round(this.canvas.width * scale));
    small.height = Math.max(1, Math.round(this.canvas.height * scale));
    const ink = small.getContext("2d");
    ink.imageSmoothingQuality = "high";
    ink.drawImage(this.canvas, 0, 0, small.width, small.height);
    return small.toDataURL("image/png").split(",")[1];
  }

  async take(file) {
    if (!file) return;
    let content = "";
    try {
      const image = await createImageBitmap(file);
      this.put(image);
      content = this.content();
    } catch { // the browser cannot read it, but maybe the server can
      this.empty(); // do not show the previous image with the new prediction
      const bytes = new Uint8Array(await file.arrayBuffer());
      for (let i = 0; i < bytes.length; i += 4096) content += String.fromCharCode(...bytes.subarray(i, i + 4096));
      content = btoa(content);
    }
    this.changed(content);
  }

  put(image) {
    const scale = Math.min(1, LARGEST / Math.max(image.width, image.height));
    this.picture = true;
    Object.assign(this.canvas, { width: Math.max(1, image.width * scale), height: Math.max(1, image.height * scale) });
    this.ink.fillStyle = "#fff"; // behind transparent pixels, as the model reads them
    this.ink.fillRect(0, 0, this.canvas.width, this.canvas.height);
    this.ink.drawImage(image, 0, 0, this.canvas.width, this.canvas.height);
  }

  // Show the image of a link or an example.
  show(content, size) {
    this.size = size;
    if (!content) {
      this.empty();
      return;
    }
    const image = new Image();
    image.addEventListener("load", () => this.put(image));
    image.src = `data:image/png;base64,${content}`;
  }
}
