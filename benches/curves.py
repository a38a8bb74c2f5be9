"""Draws curves with their spread as SVG: panels, two in a row. Needs only the standard library."""

import statistics
from html import escape

PANEL, GAP, LEFT, TOP = (360, 230), (70, 74), 58, 64


def points(places):
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


def tick_of(span, most, steps):
    """Returns the least of the steps, or of ten, a hundred, ... times them, with at most so many ticks."""
    scale = 1
    while True:
        for step in steps:
            if span / (step * scale) <= most:
                return step * scale
        scale *= 10


def panel(title, below, curves, x, y):
    """Draws curves, by label and color, at a place: means of the values at each x, and their range."""
    values = [v for curve in curves.values() for found in curve.values() for v in found]
    past = max(place for curve in curves.values() for place in curve)
    step = tick_of(max(values) - min(values), 7, (0.01, 0.02, 0.05))
    low, high = step * int(min(values) / step), step * (int(max(values) / step) + 1)
    width, height = PANEL
    at = lambda place, value: (x + width * place / past, y + height * (1 - (value - low) / (high - low)))
    out = [f'<text x="{x}" y="{y - 10}" font-weight="bold">{escape(title)}</text>']
    for nth in range(round((high - low) / step) + 1):
        value = low + nth * step
        _, line = at(0, value)
        out.append(f'<path d="M{x} {line:.1f}h{width}" stroke="#e4e4e4"/>')
        out.append(f'<text x="{x - 6}" y="{line + 4:.1f}" text-anchor="end">{value:.2f}</text>')
    tick = tick_of(past, 8, (0.1, 0.2, 0.25, 0.5))
    for nth in range(int(past / tick) + 1):
        place, _ = at(nth * tick, low)
        out.append(f'<text x="{place:.1f}" y="{y + height + 16}" text-anchor="middle">{nth * tick:g}</text>')
    out.append(f'<text x="{x + width / 2}" y="{y + height + 32}" text-anchor="middle">{below}</text>')
    for (_, color), found in curves.items():
        curve = sorted(found.items())
        if len(curve) > 1:
            edge = [at(e, max(f)) for e, f in curve] + [at(e, min(f)) for e, f in reversed(curve)]
            out.append(f'<polygon points="{points(edge)}" fill="{color}" opacity="0.13"/>')
        line = [at(e, statistics.mean(f)) for e, f in curve]
        out.append(f'<polyline points="{points(line)}" fill="none" stroke="{color}" stroke-width="1.8"/>')
        out += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="2.4" fill="{color}"/>' for px, py in line]
    return out


def drawn(panels):
    """Returns panels as SVG; each is a title, what x means, and the values at each x of each (label, color)."""
    rows = (len(panels) + 1) // 2
    width, height = LEFT + 2 * PANEL[0] + GAP[0] + 20, TOP + rows * (PANEL[1] + GAP[1])
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
           '<rect width="100%" height="100%" fill="white"/>']
    labels = list(dict.fromkeys(label for _, _, curves in panels for label in curves))
    x = LEFT
    for label, color in labels:
        out.append(f'<path d="M{x:.0f} 20h20" stroke="{color}" stroke-width="2.5"/><text x="{x + 25:.0f}" y="24">{label}</text>')
        x += 44 + 5.8 * len(label)
    for nth, (title, below, curves) in enumerate(panels):
        out += panel(title, below, curves, LEFT + (nth % 2) * (PANEL[0] + GAP[0]), TOP + (nth // 2) * (PANEL[1] + GAP[1]))
    return "\n".join([*out, "</svg>"]) + "\n"
