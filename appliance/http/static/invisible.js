// Characters that nobody sees, shown as escapes such as \u{202e}, so that what a person reads is what will be used. The same
// characters and the same exceptions as in text/invisible.py.

const UNSEEN = new RegExp(
  "[\\0-\\x08\\x0b-\\x1f\\x7f-\\x9f\\xad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\u200b-\\u200f\\u2028-\\u202e" +
    "\\u2060-\\u206f\\u3164\\ud800-\\udfff\\ufdd0-\\ufdef\\ufe00-\\ufe0f\\ufeff\\uffa0\\ufff0-\\ufffb\\ufffe\\uffff" +
    "\\u{1bca0}-\\u{1bca3}\\u{1d159}\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e0fff}]",
  "gu",
);
const PLAIN = /^[\n\t\x20-\x7e]*$/; // most texts: this is quicker
const EXACT = /[\p{Cc}\p{Cf}\p{Cn}\p{Co}\p{Cs}\p{Zl}\p{Zp}\p{Zs}\p{Default_Ignorable_Code_Point}\u2800]/gu;
const SPELLING = /[\r\u180b-\u180f\u200c\u200d\ufe0e\ufe0f\u{e0020}-\u{e007f}]/u; // what may be a part of a word or a picture
const PICTURE = /\p{Extended_Pictographic}\ufe0f?\p{Emoji_Modifier}?$/u;
const JOINING = /[\u0620-\u08ff\u0900-\u0dff\u0f00-\u109f\u1780-\u18aa]/;
const FLAGS = ["gbeng", "gbsct", "gbwls"].map((name) => `🏴${[...name].map((one) => String.fromCodePoint(0xe0000 + one.charCodeAt(0))).join("")}\u{e007f}`);

// For words of a conversation: line breaks, tabs and what belongs to the spelling stay.
export function escapeInvisible(text) {
  if (PLAIN.test(text)) return text;
  return text.replace(UNSEEN, (char, at) => (isSpelling(text, char, at) ? char : escaped(char)));
}

// For a command, a path or any other target: every character that is not plainly seen.
export function escapeExact(text) {
  return text.replace(EXACT, (char) => (char === " " ? char : escaped(char)));
}

function escaped(char) {
  return `\\u{${char.codePointAt(0).toString(16)}}`;
}

function isSpelling(text, char, at) {
  if (!SPELLING.test(char)) return false;
  const before = text.slice(Math.max(0, at - 5), at);
  const after = text.slice(at + char.length, at + char.length + 2);
  if (char === "\r") return after[0] === "\n";
  if (char === "\ufe0e" || char === "\ufe0f") return PICTURE.test(before) || (/[0-9#*]$/.test(before) && after[0] === "\u20e3");
  if (char === "\u200d" && /^\p{Extended_Pictographic}/u.test(after)) return PICTURE.test(before);
  if (char === "\u200c" || char === "\u200d") return JOINING.test(before.at(-1) ?? "") && JOINING.test(after[0] ?? "");
  if (/[\u180b-\u180d\u180f]/.test(char)) return /[\u1820-\u18aa]$/.test(before);
  if (char >= "\u{e0020}" && char <= "\u{e007f}") {
    const begin = text.lastIndexOf("🏴", at);
    return at - begin <= 12 && begin >= 0 && FLAGS.some((flag) => text.startsWith(flag, begin));
  }
  return false;
}
