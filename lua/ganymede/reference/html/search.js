/* search.js - the search box of the documentation. It looks through GANYMEDE_INDEX (index.js), a list of
 * [name, kind, address, sentence, other names]; no server and no library is needed. */
(function () {
  "use strict";
  var box = document.getElementById("search"), found = document.getElementById("found"), chosen = -1;

  /* How well an entry fits one word; 0: not at all. */
  function score(entry, word) {
    var name = entry[0].toLowerCase(), all = entry[4].toLowerCase(), short = name.split(/[.:]/).pop();
    if (name === word || (" " + all + " ").indexOf(" " + word + " ") >= 0) return 100;
    if (short === word) return 90;
    if (short.indexOf(word) === 0) return 60 - Math.min(short.length, 30);
    if (name.indexOf(word) >= 0) return 25;
    if (all.indexOf(word) >= 0) return 15;
    return entry[3].toLowerCase().indexOf(word) >= 0 ? 5 : 0;
  }

  function find(text) {
    var words = text.toLowerCase().split(/\s+/).filter(Boolean), hits = [];
    if (!words.length) return hits;
    GANYMEDE_INDEX.forEach(function (entry) {
      var sum = 0, fits = words.every(function (word) {
        var points = score(entry, word);
        sum += points;
        return points > 0;
      });
      if (fits) hits.push([sum - (entry[1] === "guide" ? 3 : 0), entry]);
    });
    hits.sort(function (a, b) { return b[0] - a[0] || a[1][0].length - b[1][0].length || (a[1][0] < b[1][0] ? -1 : 1); });
    return hits.slice(0, 30).map(function (hit) { return hit[1]; });
  }

  function span(tag, name, text) {
    var made = document.createElement(tag);
    made.className = name;
    made.textContent = text;
    return made;
  }

  function show() {
    var hits = find(box.value);
    found.textContent = "";
    chosen = -1;
    hits.forEach(function (entry) {
      var item = document.createElement("li"), link = document.createElement("a");
      link.href = entry[2];
      link.appendChild(span("span", "name", entry[0]));
      link.appendChild(span("span", "kind", entry[1]));
      link.appendChild(span("span", "sentence", entry[3]));
      link.addEventListener("click", close);
      item.appendChild(link);
      found.appendChild(item);
    });
    if (!hits.length && box.value.trim()) found.appendChild(span("li", "none", "Nothing has this name."));
    found.hidden = !found.firstChild;
  }

  function close() { found.hidden = true; }

  function choose(step) {
    var links = found.querySelectorAll("a");
    if (!links.length) return;
    chosen = (chosen + step + links.length) % links.length;
    links.forEach(function (link, i) { link.classList.toggle("chosen", i === chosen); });
    links[chosen].scrollIntoView({ block: "nearest" });
  }

  box.addEventListener("input", show);
  box.addEventListener("focus", show);
  box.addEventListener("keydown", function (event) {
    var links = found.querySelectorAll("a");
    if (event.key === "ArrowDown") { choose(1); event.preventDefault(); }
    else if (event.key === "ArrowUp") { choose(-1); event.preventDefault(); }
    else if (event.key === "Enter" && links.length) { links[Math.max(chosen, 0)].click(); }
    else if (event.key === "Escape") { close(); box.blur(); }
  });
  document.addEventListener("keydown", function (event) {
    if (event.key === "/" && document.activeElement !== box) { box.focus(); event.preventDefault(); }
  });
  document.addEventListener("click", function (event) {
    if (!event.target.closest(".search")) close();
  });
  /* On a narrow screen the list of pages is closed at first. */
  if (window.matchMedia("(max-width: 60rem)").matches) document.getElementById("menu").open = false;
}());
