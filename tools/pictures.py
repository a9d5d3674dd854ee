#!/usr/bin/env python3
"""Draws the pictures of docs/ from text: each `NAME.txt` in a folder `pictures` becomes `NAME.svg` beside it.

`python3 tools/pictures.py` draws all of them; `--check` draws none and ends with 1 where a picture is not what its text says.

A line of text is one of these; blank lines and lines that begin with # are passed over.

    size WIDTH HEIGHT                 of the picture, in cells of 10 pixels
    box NAME X Y W H [STYLE] | text   a box; `\\n` breaks lines; STYLE: plain, soft, strong, dashed
    arrow FROM TO [STYLE] | text      from border to border of two boxes; STYLE: plain, dashed, both
    text X Y [STYLE] | text           words alone; STYLE: plain, small, title
    lane NAME X | text                a vertical line of a sequence, from its heading to the bottom
    send FROM TO Y [STYLE] | text     a message from lane to lane
    span LANE Y1 Y2 [STYLE] | text    what a lane does meanwhile; the text stands right of it (STYLE left: left of it)
"""

import html
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CELL = 10
FONT = "system-ui, sans-serif"
FILLS = {"plain": "#ffffff", "soft": "#eef3f8", "strong": "#d5e4f2", "dashed": "none", "left": "#d5e4f2"}
LINE = "#44546a"
HEAD = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w} {h}" width="{w}" height="{h}" font-family="{font}" font-size="12" fill="#1d2733">\n'
    "<title>{title}</title>\n"
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto-start-reverse">'
    '<path d="M0,0 L8,4 L0,8 z" fill="{line}"/></marker></defs>\n'
    '<rect width="{w}" height="{h}" fill="#ffffff"/>\n'
)


def words(x, y, text, size=12, anchor="middle", weight="normal"):
    lines = text.split("\\n")
    top = y - (len(lines) - 1) * (size + 3) / 2
    drawn = ""
    # Small words stand on lines: a white rim, drawn first, keeps them readable.
    for rim in ([' stroke="#ffffff" stroke-width="4"'] if size < 12 else []) + [""]:
        for i, line in enumerate(lines):
            place = f'x="{x:g}" y="{top + i * (size + 3) + size / 3:g}"'
            drawn += f'<text {place} text-anchor="{anchor}" font-size="{size}" font-weight="{weight}"{rim}>{html.escape(line)}</text>\n'
    return drawn


def border(box, towards):
    """Where the straight line from the middle of a box to a point leaves the box."""
    x, y, w, h = box
    middle = (x + w / 2, y + h / 2)
    dx, dy = towards[0] - middle[0], towards[1] - middle[1]
    if not dx and not dy:
        return middle
    scale = min(w / 2 / abs(dx) if dx else 1e9, h / 2 / abs(dy) if dy else 1e9)
    return middle[0] + dx * scale, middle[1] + dy * scale


def ends(a, b):
    """Boxes that overlap in one direction are joined by a straight line in the other."""
    left, right = max(a[0], b[0]), min(a[0] + a[2], b[0] + b[2])
    top, bottom = max(a[1], b[1]), min(a[1] + a[3], b[1] + b[3])
    if left < right:
        x = (left + right) / 2
        return ((x, a[1] + a[3]), (x, b[1])) if a[1] < b[1] else ((x, a[1]), (x, b[1] + b[3]))
    if top < bottom:
        y = (top + bottom) / 2
        return ((a[0] + a[2], y), (b[0], y)) if a[0] < b[0] else ((a[0], y), (b[0] + b[2], y))
    centre = lambda box: (box[0] + box[2] / 2, box[1] + box[3] / 2)
    return border(a, centre(b)), border(b, centre(a))


def line(start, end, style, tips=True):
    dash = ' stroke-dasharray="5 4"' if "dashed" in style else ""
    marks = (' marker-end="url(#tip)"' if tips else "") + (' marker-start="url(#tip)"' if "both" in style else "")
    return f'<line x1="{start[0]:g}" y1="{start[1]:g}" x2="{end[0]:g}" y2="{end[1]:g}" stroke="{LINE}" stroke-width="1.3"{dash}{marks}/>\n'


def draw(source):
    boxes, lanes, under, over, size = {}, {}, "", "", (800, 400)
    title = source.stem.replace("-", " ")
    for raw in source.read_text().splitlines():
        if not raw.strip() or raw.startswith("#"):
            continue
        head, _, text = raw.partition("|")
        kind, *rest = head.split()
        text = text.strip()
        number = [float(word) * CELL for word in rest if word.replace(".", "", 1).isdigit()]
        names = [word for word in rest if not word.replace(".", "", 1).isdigit()]
        style = names[-1] if names else "plain"
        if kind == "size":
            size = number
        elif kind == "box":
            x, y, w, h = boxes[names[0]] = number
            fill = FILLS.get(style, "#ffffff")
            dash = ' stroke-dasharray="5 4"' if style == "dashed" else ""
            under += f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="5" fill="{fill}" stroke="{LINE}"{dash}/>\n'
            # A box that others stand in has its words at its top.
            if style == "dashed":
                over += words(x + 8, y + 12, text, 12, "start", "bold")
            else:
                over += words(x + w / 2, y + h / 2, text)
        elif kind == "arrow":
            start, end = ends(boxes[names[0]], boxes[names[1]])
            over += line(start, end, names[2:])
            if text:
                x, y = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
                across = abs(start[0] - end[0]) > abs(start[1] - end[1])
                over += words(x, y - 9, text, 11) if across else words(x + 6, y, text, 11, "start")
        elif kind == "text":
            if style == "title":
                title = text
            over += words(*number[:2], text, {"title": 15, "small": 11}.get(style, 12), "start", "bold" if style == "title" else "normal")
        elif kind == "lane":
            x = lanes[names[0]] = number[0]
            under += line((x, 55), (x, size[1] - 10), ["plain"], tips=False).replace('stroke-width="1.3"', 'stroke-width="1" opacity="0.5"')
            over += words(x, 42, text, 12, "middle", "bold")
        elif kind == "send":
            start, end = lanes[names[0]], lanes[names[1]]
            nudge = 6 if end > start else -6
            over += line((start + nudge, number[0]), (end - nudge, number[0]), names[2:])
            over += words((start + end) / 2, number[0] - 9, text, 11)
        elif kind == "span":
            x = lanes[names[0]]
            under += f'<rect x="{x - 5:g}" y="{number[0]:g}" width="10" height="{number[1] - number[0]:g}" fill="{FILLS.get(style, FILLS["strong"])}" stroke="{LINE}"/>\n'
            if text:
                over += words(x - 11 if style == "left" else x + 11, (number[0] + number[1]) / 2, text, 11, "end" if style == "left" else "start")
        else:
            sys.exit(f"{source}: {raw}: no such word: {kind}")
    return HEAD.format(w=f"{size[0]:g}", h=f"{size[1]:g}", font=FONT, line=LINE, title=html.escape(title)) + under + over + "</svg>\n"


def main():
    old = []
    for source in sorted(ROOT.glob("docs/*/pictures/*.txt")):
        drawn, target = draw(source), source.with_suffix(".svg")
        if "--check" in sys.argv:
            if not target.exists() or target.read_text() != drawn:
                old.append(target.relative_to(ROOT))
        else:
            target.write_text(drawn)
    for target in old:
        print(f"{target} is not what its text says: python3 tools/pictures.py")
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main())
