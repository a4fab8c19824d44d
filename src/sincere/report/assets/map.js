"use strict";
// The maps of the test samples: one canvas for each loss, one card for the sample pointed at.
const PAD = 24; // pixels between the outermost points and the edge
const ABOVE = 13; // pixels from a class's points to its name
const REACH = 40; // pixels from the pointer within which a point is selected
const LARGE = 144, SMALL = 44; // sides of the images on the card

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function startMap({ steps, maps, sheets }) {
  const canvases = maps.map((_, i) => document.querySelector(`#map-${i} canvas`));
  const card = document.getElementById("card");
  const images = sheets.map(({ thumbnails }) => thumbnails && Object.assign(new Image(), { src: thumbnails.source }));
  let pointed = null; // { map, point }

  function resize(i) {
    const canvas = canvases[i], side = canvas.clientWidth, ratio = devicePixelRatio || 1;
    canvas.width = canvas.height = Math.round(side * ratio);
    const coordinate = (value) => PAD + (value / steps) * (side - 2 * PAD);
    const flat = maps[i].points;
    canvas.positions = maps[i].predictions.map((_, p) => [coordinate(flat[2 * p]), side - coordinate(flat[2 * p + 1])]);
    draw(i);
  }

  function draw(i) {
    const canvas = canvases[i], side = canvas.clientWidth, map = maps[i], { labels } = sheets[map.sheet];
    if (!side) return;
    const pen = canvas.getContext("2d");
    pen.setTransform(canvas.width / side, 0, 0, canvas.height / side, 0, 0);
    pen.clearRect(0, 0, side, side);
    const { color: ink, backgroundColor: ground } = getComputedStyle(canvas);
    const [radius, arm] = labels.length > 800 ? [2.4, 3.4] : [3.4, 5];
    canvas.positions.forEach(([x, y], p) => {
      pen.strokeStyle = pen.fillStyle = themed(report.class_colours[labels[p]]);
      pen.beginPath();
      if (map.predictions[p] === labels[p]) {
        pen.globalAlpha = 0.8;
        pen.arc(x, y, radius, 0, 2 * Math.PI);
        pen.fill();
      } else {
        pen.globalAlpha = 1;
        pen.lineWidth = arm / 2;
        pen.moveTo(x - arm, y - arm); pen.lineTo(x + arm, y + arm);
        pen.moveTo(x - arm, y + arm); pen.lineTo(x + arm, y - arm);
        pen.stroke();
      }
    });
    pen.globalAlpha = 1;
    if (report.class_names.length <= report.most_labelled) {
      pen.font = "600 13px system-ui, sans-serif";
      pen.textAlign = "center";
      pen.textBaseline = "middle";
      pen.lineWidth = 4;
      pen.lineJoin = "round";
      for (const [label, [x, y]] of Object.entries(map.label_positions)) {
        const name = shortened(report.class_names[label]);
        const half = pen.measureText(name).width / 2 + 4; // inside the edges
        const across = Math.min(Math.max(PAD + x * (side - 2 * PAD), half), side - half);
        const at = [across, Math.max(side - PAD - y * (side - 2 * PAD) - ABOVE, 10)];
        pen.strokeStyle = ground; pen.strokeText(name, ...at);
        pen.fillStyle = ink; pen.fillText(name, ...at);
      }
    }
    if (pointed && maps[pointed.map].sheet === map.sheet) {
      const [x, y] = canvas.positions[pointed.point];
      pen.strokeStyle = ink;
      pen.lineWidth = 2;
      pen.beginPath();
      pen.arc(x, y, 8, 0, 2 * Math.PI);
      pen.stroke();
    }
  }

  const shortened = (name) => (name.length > 18 ? `${name.slice(0, 17)}…` : name);

  function picture(sheetNumber, point, side) {
    const { labels, thumbnails: { columns, width, height } } = sheets[sheetNumber];
    const canvas = element("canvas", "picture");
    const ratio = devicePixelRatio || 1, scale = side / Math.max(width, height);
    canvas.style.width = `${width * scale}px`;
    canvas.style.height = `${height * scale}px`;
    canvas.width = Math.round(width * scale * ratio);
    canvas.height = Math.round(height * scale * ratio);
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", report.class_names[labels[point]]);
    const pen = canvas.getContext("2d");
    pen.imageSmoothingEnabled = width >= 64;
    const from = [(point % columns) * width, Math.floor(point / columns) * height, width, height];
    pen.drawImage(images[sheetNumber], ...from, 0, 0, canvas.width, canvas.height);
    return canvas;
  }

  function neighboursUnder(map, point) {
    const { labels, texts, thumbnails } = sheets[map.sheet];
    const right = map.predictions[point] === labels[point];
    const row = element("div", "neighbours");
    const verdict = element("p", right ? "right" : "wrong");
    verdict.append(element("b", "", map.loss), ` ${right ? "✓" : "✗"} predicted ${report.class_names[map.predictions[point]]}`);
    const list = element("ul", thumbnails ? "" : "words");
    for (const neighbour of map.neighbours[point]) {
      const item = element("li", labels[neighbour] === labels[point] ? "" : "other");
      if (thumbnails) item.append(picture(map.sheet, neighbour, SMALL));
      item.append(element("span", "", report.class_names[labels[neighbour]]));
      if (texts && !thumbnails) item.append(element("span", "text", texts[neighbour]));
      list.append(item);
    }
    row.append(verdict, list);
    return row;
  }

  function show(map, point) {
    if (pointed && pointed.map === map && pointed.point === point) return;
    pointed = { map, point };
    const { sheet } = maps[map], { ids, labels, texts, thumbnails } = sheets[sheet];
    const about = element("div", thumbnails ? "about" : "about words");
    if (thumbnails) about.append(picture(sheet, point, LARGE));
    about.append(element("p", "label", report.class_names[labels[point]]));
    if (texts) about.append(element("p", "text", texts[point]));
    about.append(element("p", "note", `test ${report.sample} ${ids[point]}`));
    const rows = element("div", "rows");
    rows.append(...maps.filter((other) => other.sheet === sheet).map((other) => neighboursUnder(other, point)));
    card.replaceChildren(about, rows);
    maps.forEach((_, i) => draw(i));
  }

  function nearest(i, event) {
    const box = canvases[i].getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    let best = -1, least = REACH ** 2;
    canvases[i].positions.forEach(([px, py], p) => {
      const distance = (px - x) ** 2 + (py - y) ** 2;
      if (distance < least) [best, least] = [p, distance];
    });
    return best;
  }

  canvases.forEach((canvas, i) => {
    const point = (event) => {
      const found = nearest(i, event);
      if (found >= 0) show(i, found);
    };
    canvas.addEventListener("pointermove", point);
    canvas.addEventListener("pointerdown", point);
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const n = maps[i].predictions.length;
      show(i, pointed && pointed.map === i ? (pointed.point + step + n) % n : 0);
    });
    resize(i);
    new ResizeObserver(() => resize(i)).observe(canvas);
  });
  document.addEventListener("theme", () => maps.forEach((_, i) => draw(i)));

  const panels = canvases.map((canvas) => canvas.parentElement);
  if (maps.length > 1) {
    choice(document.getElementById("map-choice"), maps.map((map) => map.loss), (chosen) => {
      panels.forEach((panel, i) => panel.classList.toggle("chosen", i === chosen));
    });
  } else panels[0].classList.add("chosen");

  // Show a first sample on the card: a misclassified one, if there is one.
  Promise.all(images.map((image) => image?.decode())).then(() => {
    const wrong = maps[0].predictions.findIndex((prediction, p) => prediction !== sheets[maps[0].sheet].labels[p]);
    show(0, Math.max(wrong, 0));
  });
}

if (report.map) startMap(report.map);
