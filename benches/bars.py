"""Draws horizontal bars as SVG, on a white ground. Needs only the standard library."""

from html import escape

LEFT, WIDTH, ROW, BAR, TOP = 130, 560, 24, 15, 52


def drawn(title, groups):
    """Returns groups of bars as SVG: for each group a label, a color, and the names and values. A line marks 1."""
    most = max(value for *_, found in groups for _, value in found)
    out, y, x = [], TOP, LEFT
    for label, color, found in groups:
        out.append(f'<rect x="{x}" y="31" width="10" height="10" fill="{color}"/><text x="{x + 15}" y="40">{escape(label)}</text>')
        x += 40 + 7 * len(label)
        for name, value in found:
            length = WIDTH * value / most
            out.append(f'<text x="{LEFT - 8}" y="{y + 12}" text-anchor="end">{escape(name)}</text>')
            out.append(f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR}" fill="{color}"/>')
            out.append(f'<text x="{LEFT + length + 6:.1f}" y="{y + 12}">{value:.1f}</text>')
            y += ROW
        y += 8
    one = LEFT + WIDTH / most
    out.append(f'<path d="M{one:.1f} {TOP - 5}V{y - 8}" stroke="#d55e00" stroke-width="1.5" stroke-dasharray="4 3"/>')
    head = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 50} {y}" font-family="sans-serif" font-size="12">',
            '<rect width="100%" height="100%" fill="white"/>',
            f'<text x="{LEFT}" y="20" font-size="14" font-weight="bold">{escape(title)}</text>']
    return "\n".join([*head, *out, "</svg>"]) + "\n"
