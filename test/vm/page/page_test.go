package page

import (
	"bytes"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/sim/scenario"
)

var update = flag.Bool("update", false, "take the pictures of docs/images anew")

// shape is a machine with everything that the map can draw.
const shape = "2s x 2n x 2l x 4c x 2t, 32GiB/node"

// show opens the page of a node.
func show(t *testing.T, n *node) *browser {
	t.Helper()
	b := open(t)
	b.view(1400, 1000, 1, "light")
	b.visit(n.url())
	b.until(text("#live"), "Live")
	b.until(text("#node"), "worker-7")
	return b
}

// TestPage: the page shows the node and its state, and explains CPUs and pods by mouse and keyboard.
func TestPage(t *testing.T) {
	n := newNode(t, shape)
	n.start()
	n.owner("shop", "db-0", 4)
	n.shared("shop", "web-0", 500)
	n.batch("batch", "report-0")
	b := show(t, n)
	b.until(text("#verdict .text"), "Healthy: all decided values are in force.")
	b.until(has("#facts", "4 of 64 CPUs owned by 1 pod"), "true")
	b.until("document.querySelectorAll('#map .cpu').length", "64")
	b.until("document.querySelectorAll('#map .socket').length + ' ' + document.querySelectorAll('#map .numa').length + ' ' + document.querySelectorAll('#map .cache').length", "2 4 8")
	b.until("document.querySelectorAll('#rows tr').length", "3")

	t.Run("use", func(t *testing.T) {
		n.busy(func(int) float64 { return 0.5 })
		b.until("+document.querySelector('#map .cpu .bar').getAttribute('width') > 10", "true")
		b.until(has(".numa .busy", "50 % busy"), "true")
		b.until(has("#facts", "cpu some 3.2 %"), "true")
	})
	t.Run("live", func(t *testing.T) {
		before := time.Now()
		n.owner("shop", "cache-0", 2)
		b.until(has("#users", "shop/cache-0"), "true")
		t.Logf("the map shows a new owner %v after its creation began", time.Since(before).Round(time.Millisecond))
		b.until("document.querySelectorAll('#map .cpu.own').length", "6")
		b.until(has("#facts", "6 of 64 CPUs owned by 2 pods"), "true")
	})
	t.Run("mouse", func(t *testing.T) {
		b.eval("document.querySelector('#map .cpu.own').dispatchEvent(new MouseEvent('click', {bubbles: true, cancelable: true}))")
		b.until(has("#explanation .text", "no other container may run on it."), "true")
		b.until("document.querySelectorAll('#map .cpu.selected').length", "1")
		b.eval("[...document.querySelectorAll('#rows a')].find((a) => a.textContent.startsWith('shop/db-0')).click()")
		b.until(text("#explanation h2"), "Container shop/db-0/main")
		b.until("document.querySelectorAll('#map .cpu.selected').length", "4")
		b.until(has("#explanation", "cpuset.cpus"), "true")
	})
	t.Run("keyboard", func(t *testing.T) { keyboard(t, b) })
	t.Run("filter", func(t *testing.T) {
		b.eval("(() => { const f = document.getElementById('filter'); f.value = 'batch'; f.dispatchEvent(new Event('input')); })()")
		b.until("document.querySelectorAll('#rows tr').length", "1")
		b.until(text("#count"), "1 of 4")
		b.eval("(() => { const f = document.getElementById('filter'); f.value = ''; f.dispatchEvent(new Event('input')); })()")
	})
	t.Run("a problem", func(t *testing.T) {
		n.pod(scenario.Pod{Namespace: "shop", Name: "greedy", QoS: "Guaranteed", Labels: map[string]string{"koordinator.sh/qosClass": "LSR"}}, 500_000)
		b.until("document.getElementById('verdict').className", "bad")
		b.until(has("#verdict", "shop/greedy/main: "), "true")
		b.until("document.title.startsWith('✗')", "true")
		b.until(has("#rows tr", "shop/greedy/main"), "true") // the row is the first one
	})
	b.quiet()
}

// keyboard does what a user without a mouse does. The CPUs are one stop of the Tab key; arrow keys move
// within them.
func keyboard(t *testing.T, b *browser) {
	t.Helper()
	b.eval("location.hash = ''")
	b.until(text("#explanation h2"), "Nothing is selected")
	b.eval("document.activeElement.blur()")
	focused := "(document.activeElement.getAttribute('href') || document.activeElement.id || document.activeElement.tagName)"
	b.press("Tab")
	b.until(focused, "#containers")
	b.until("document.activeElement.getBoundingClientRect().left >= 0", "true") // the focused link is visible now
	b.press("Tab")
	b.until(focused, "#numa=0")
	b.press("Tab")
	b.until(focused, "#cpu=0")
	b.press("ArrowRight")
	b.until(focused, "#cpu=32")
	b.until("getComputedStyle(document.activeElement.querySelector('.back')).strokeWidth", "5px")
	b.until("/^CPU 32, .*busy$/.test(document.activeElement.getAttribute('aria-label'))", "true")
	b.press("ArrowDown")
	b.until(focused, "#cpu=40")
	b.press("ArrowUp")
	b.until(focused, "#cpu=32")
	b.press("End")
	b.until(focused, "#cpu=63")
	b.press("Home")
	b.press("Enter")
	b.until(text("#explanation h2"), "CPU 0")
	b.until(has("#explanation .text", "is reserved for the system"), "true")
	b.press("Escape")
	b.until(text("#explanation h2"), "Nothing is selected")
	b.until(focused, "#cpu=0")
	// Everything that can be clicked has a name.
	b.until("[...document.querySelectorAll('a, button, input')].filter((e) => !(e.getAttribute('aria-label') || e.textContent || e.labels?.length)).length", "0")
}

// TestShapes: nothing is wider than the window at any zoom, in both colour schemes, and all text has enough
// contrast.
func TestShapes(t *testing.T) {
	n := newNode(t, shape)
	n.start()
	n.owner("shop", "db-0", 4)
	n.shared("shop", strings.Repeat("a-long-name-", 20)+"end", 500)
	b := show(t, n)
	b.eval("location.hash = '#cpu=1'")
	for _, scheme := range []string{"light", "dark"} {
		for _, zoom := range []float64{1, 2, 4} {
			b.view(1280, 900, zoom, scheme)
			b.until("document.documentElement.scrollWidth <= innerWidth", "true")
		}
		b.until("getComputedStyle(document.body).backgroundColor", map[string]string{"light": "rgb(251, 251, 250)", "dark": "rgb(13, 17, 23)"}[scheme])
		b.until(contrast, "ok")
	}
	b.quiet()
}

// contrast compares texts with their background by the formula of WCAG 2.1; level AA needs 4.5.
const contrast = `(() => {
  const light = (c) => { const [r, g, b] = c.match(/[\d.]+/g).map((v) => v / 255).map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  const behind = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (!/, 0\)$/.test(c)) return c; } return "rgb(255, 255, 255)"; };
  const bad = [];
  for (const e of document.querySelectorAll("h1, h1 small, h2, h3, h4 a, p, li, td, th, .text, #live, .hint, .busy, .cpus")) {
    if (e.offsetParent && ratio(getComputedStyle(e).color, behind(e)) < 4.5) bad.push(e.outerHTML.slice(0, 80));
  }
  for (const e of document.querySelectorAll(".cpu:not(.reserved) text")) {
    if (ratio(getComputedStyle(e).fill, getComputedStyle(e.parentElement.querySelector(".back")).fill) < 4.5) bad.push(e.parentElement.getAttribute("class"));
  }
  return bad.length ? bad.join("; ") : "ok";
})()`

// TestHostile: names and annotations of a pod that contain markup are shown as text everywhere.
func TestHostile(t *testing.T) {
	n := newNode(t, shape)
	n.start()
	const bad = `<img src=x onerror="window.hit=1"><script>window.hit=1</script>`
	n.pod(scenario.Pod{
		Namespace: "shop", Name: bad, QoS: "Guaranteed", Labels: map[string]string{"koordinator.sh/qosClass": "LSR"},
		Annotations: map[string]string{"scheduling.koordinator.sh/resource-status": bad},
	}, 2000)
	b := show(t, n)
	b.until(has("#users", bad)+" || "+has("#rows", bad), "true")
	b.eval("document.querySelector('#rows a').click()")
	b.until(has("#explanation h2", bad), "true")
	b.until(has("#explanation", "onerror"), "true")
	b.until("document.querySelectorAll('img:not(noscript img)').length + document.querySelectorAll('body script').length", "0")
	b.until("String(window.hit)", "undefined")
	// Even an injected script would not run, and could not send anything.
	b.eval("(() => { const s = document.createElement('script'); s.textContent = 'window.hit = 1'; document.body.append(s); s.remove(); })()")
	b.until("String(window.hit)", "undefined")
	b.until("fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'refused')", "refused")
}

// TestReconnects: the page shows that the agent does not answer, and continues by itself when it does
// again.
func TestReconnects(t *testing.T) {
	n := newNode(t, shape)
	n.start()
	n.owner("shop", "db-0", 4)
	b := show(t, n)
	b.until("document.querySelectorAll('#map .cpu.own').length", "4")
	n.stop()
	b.until(has("#live", "does not answer"), "true")
	b.until("document.body.classList.contains('old')", "true")
	n.start()
	n.owner("shop", "cache-0", 2)
	b.until(text("#live"), "Live")
	b.until("document.querySelectorAll('#map .cpu.own').length", "6")
	b.until("document.body.classList.contains('old')", "false")
}

// TestRebinding: the page answers neither requests with foreign host names nor requests of other sites.
func TestRebinding(t *testing.T) {
	n := newNode(t, "4c")
	n.start()
	for host, want := range map[string]int{n.address: http.StatusOK, "rebound.example": http.StatusMisdirectedRequest} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.url(), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s: %s, want %d", host, answer.Status, want)
		}
	}
}

// TestPictures takes the pictures of the docs with -update, and otherwise checks that they exist.
func TestPictures(t *testing.T) {
	const dir = "../../../docs/images"
	names := []string{"page.png", "page-dark.png"}
	if !*update {
		for _, name := range names {
			if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() > 150_000 {
				t.Errorf("%s: %v; take it anew: go test -run TestPictures ./page -update", name, err)
			}
		}
		return
	}
	n := newNode(t, shape)
	n.start()
	for i, name := range []string{"db-0", "cache-0", "train-0"} {
		n.owner("shop", name, int64(4+2*i))
	}
	for i := range 6 {
		n.shared("shop", fmt.Sprintf("web-%d", i), 1500)
		n.batch("batch", fmt.Sprintf("report-%d", i))
	}
	b := show(t, n)
	b.view(1180, 900, 1, "light")
	b.eval("location.hash = '#pod=shop/db-0'")
	b.until(text("#explanation h2"), "Pod shop/db-0")
	n.busy(func(cpu int) float64 { return float64((cpu*7)%11) / 10 })
	for _, name := range names {
		b.until(has("#users .busy", "% busy"), "true")
		if err := os.WriteFile(filepath.Join(dir, name), smaller(t, b.shoot()), 0o600); err != nil {
			t.Fatal(err)
		}
		b.view(1180, 900, 1, "dark")
		b.eval("location.hash = '#cpu=1'")
		b.until(text("#explanation h2"), "CPU 1")
	}
}

// smaller returns a picture in its 256 most frequent colours, which are enough for a page of few colours.
func smaller(t *testing.T, data []byte) []byte {
	t.Helper()
	from, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	size := from.Bounds()
	often := map[color.Color]int{}
	for y := range size.Dy() {
		for x := range size.Dx() {
			often[from.At(x, y)]++
		}
	}
	colors := slices.SortedFunc(maps.Keys(often), func(a, b color.Color) int { return often[b] - often[a] })
	to := image.NewPaletted(size, colors[:min(len(colors), 256)])
	draw.Draw(to, size, from, image.Point{}, draw.Src)
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, to); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
