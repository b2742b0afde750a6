// The button that opens the screen again after it was left, and the keys go to the terminal as soon as it is drawn.
document.getElementById("again").addEventListener("click", () => window.location.reload());

new MutationObserver((changes, observer) => {
  if (document.body.classList.contains("-first-byte")) {
    observer.disconnect();
    document.querySelector(".xterm-helper-textarea")?.focus();
  }
}).observe(document.body, { attributes: true, attributeFilter: ["class"] });
