package page

import (
	"fmt"
	"html"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// columns is the width of the terminal in the pictures.
const columns = 104

// TestSession: docs/images has a session with the agent of trimtab sim serve, as a terminal shows it, on a
// light and on a dark background. With -update it takes the pictures.
func TestSession(t *testing.T) {
	const dir = "../../../docs/images"
	for _, scheme := range []string{"light", "dark"} {
		name := map[string]string{"light": "session.png", "dark": "session-dark.png"}[scheme]
		if info, err := os.Stat(filepath.Join(dir, name)); !*update && (err != nil || info.Size() > 150_000) {
			t.Errorf("%s: %v; take it anew: go test -run TestSession ./page -update", name, err)
		}
	}
	shown := terminal(session(t))
	b := open(t)
	for _, scheme := range []string{"light", "dark"} {
		b.view(900, 900, 1, scheme)
		b.visit("data:text/html;charset=utf-8," + url.PathEscape(shown))
		b.until("document.fonts.status + document.querySelectorAll('#session').length", "loaded1")
		if wide := b.eval("document.documentElement.scrollWidth <= innerWidth"); wide != "true" {
			t.Errorf("%s: the session is wider than the picture", scheme)
		}
		height, err := strconv.Atoi(b.eval("Math.ceil(document.querySelector('#session').getBoundingClientRect().bottom + 12)"))
		if err != nil {
			t.Fatal(err)
		}
		b.view(900, height, 1, scheme)
		picture := smaller(t, b.shoot())
		if !*update {
			continue
		}
		name := map[string]string{"light": "session.png", "dark": "session-dark.png"}[scheme]
		if err := os.WriteFile(filepath.Join(dir, name), picture, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// session returns the terminal output of commands for the agent of trimtab sim serve.
func session(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	bin := filepath.Join(dir, "trimtab")
	run(t, dir, "go", "build", "-C", must(filepath.Abs("../../..")), "-tags", "nri_no_wasm,grpcnotrace", "-o", bin, "./cmd/trimtab")
	scenario := must(filepath.Abs("../../../test/scenarios/pools-dedicated.yaml"))
	serve := exec.CommandContext(t.Context(), bin, "sim", "serve", "--agent", "--http", "none", "--dir", dir, scenario)
	serve.Cancel = func() error { return serve.Process.Signal(os.Interrupt) }
	serve.WaitDelay = 10 * time.Second
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = serve.Process.Signal(os.Interrupt)
		_ = serve.Wait()
	})
	file := filepath.Join(dir, "config.yaml")
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if _, err := os.Stat(file); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("trimtab sim serve --agent wrote no configuration")
		}
	}
	var b strings.Builder
	b.WriteString("\x1b[2m$\x1b[0m trimtab sim serve --agent test/scenarios/pools-dedicated.yaml &\n")
	for _, command := range []string{"trimtab status", "trimtab explain default/next"} {
		fmt.Fprintf(&b, "\x1b[2m$\x1b[0m %s\n%s", command, run(t, dir, "script", "-qec", fmt.Sprintf("stty cols %d; ./%s", columns, command), "/dev/null"))
	}
	return b.String()
}

func must(path string, err error) string {
	if err != nil {
		panic(err)
	}
	return path
}

func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TERM=xterm-256color", "LANG=C.UTF-8", "NO_COLOR=", "TRIMTAB_CONFIG="+filepath.Join(dir, "config.yaml"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

var escape = regexp.MustCompile("\x1b\\[([0-9;]*)m")

// terminal is a page that looks like a terminal with this text.
func terminal(text string) string {
	var b strings.Builder
	b.WriteString(`<!doctype html><meta name="color-scheme" content="light dark"><style>
body { margin: 12px; background: light-dark(#fff, #0d1117); color: light-dark(#1f2328, #e6edf3) }
pre { font: 13px/1.35 "DejaVu Sans Mono", monospace; margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; width: ` +
		strconv.Itoa(columns) + `ch }
</style><pre id="session">`)
	open := false
	last := 0
	text = strings.ReplaceAll(text, "\r", "")
	for _, at := range escape.FindAllStringSubmatchIndex(text, -1) {
		b.WriteString(html.EscapeString(text[last:at[0]]))
		last = at[1]
		if open {
			b.WriteString("</span>")
			open = false
		}
		if style := styleOf(text[at[2]:at[3]]); style != "" {
			fmt.Fprintf(&b, `<span style="%s">`, style)
			open = true
		}
	}
	b.WriteString(html.EscapeString(text[last:]))
	return b.String()
}

// styleOf converts the numbers of an escape sequence to CSS: bold, faint, the eight colours, and the 256
// colours.
func styleOf(codes string) string {
	var css []string
	all := strings.Split(codes, ";")
	for i := 0; i < len(all); i++ {
		n, _ := strconv.Atoi(all[i])
		switch {
		case n == 1:
			css = append(css, "font-weight:bold")
		case n == 2:
			css = append(css, "opacity:.65")
		case n >= 31 && n <= 36:
			css = append(css, "color:"+[]string{"#c62828", "#2e7d32", "#b26a00", "#1565c0", "#8e24aa", "#00838f"}[n-31])
		case (n == 38 || n == 48) && i+2 < len(all):
			color, _ := strconv.Atoi(all[i+2])
			css = append(css, map[int]string{38: "color:", 48: "background:"}[n]+xterm(color))
			i += 2
		}
	}
	return strings.Join(css, ";")
}

// xterm returns a colour of the cube or of the greys of xterm's 256 colours.
func xterm(n int) string {
	if n >= 232 {
		grey := 8 + 10*(n-232)
		return fmt.Sprintf("rgb(%d,%d,%d)", grey, grey, grey)
	}
	n = max(n-16, 0)
	level := func(n int) int {
		if n == 0 {
			return 0
		}
		return 55 + 40*n
	}
	return fmt.Sprintf("rgb(%d,%d,%d)", level(n/36), level(n/6%6), level(n%6))
}
