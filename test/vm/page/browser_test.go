package page

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience bounds each wait; a quiet machine needs a second or two.
const patience = time.Minute

// browser is a Chromium with one tab, controlled by the DevTools protocol over a pair of pipes: no port is
// open.
type browser struct {
	t       *testing.T
	in      io.Writer
	session string

	mu      sync.Mutex
	last    int
	waiting map[int]chan reply
	console []string // the complaints of scripts and the browser
}

type reply struct {
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// open starts a browser, which ends with the test.
func open(t *testing.T) *browser {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("chromium is missing: test/tools/deps.sh e2e installs it")
		}
		t.Skip("chromium is missing: apt-get install chromium, or make e2e, which does")
	}
	toRead, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, toWrite, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	// Root has no Chromium sandbox; the pages are our own.
	cmd := exec.Command(program, "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run", "--disable-background-networking", "--disable-component-update", "--hide-scrollbars", "--force-color-profile=srgb",
		"--user-data-dir="+t.TempDir(), "about:blank")
	cmd.ExtraFiles = []*os.File{toRead, toWrite}
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = toRead.Close()
	_ = toWrite.Close()
	b := &browser{t: t, in: in, waiting: map[int]chan reply{}}
	read := make(chan struct{})
	go func() { defer close(read); b.read(out) }()
	t.Cleanup(func() {
		_, _ = b.call("", "Browser.close", nil, 5*time.Second)
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		<-read
		_ = out.Close()
		if t.Failed() {
			t.Logf("the page's console: %q\nthe browser: %s", b.console, said.String())
		}
	})
	b.attach()
	return b
}

// attach opens a tab.
func (b *browser) attach() {
	var target struct {
		ID string `json:"targetId"`
	}
	b.ask("", "Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var session struct {
		ID string `json:"sessionId"`
	}
	b.ask("", "Target.attachToTarget", map[string]any{"targetId": target.ID, "flatten": true}, &session)
	b.session = session.ID
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		b.do(domain+".enable", nil)
	}
}

// read reads messages, which end with a zero byte, until the browser ends.
func (b *browser) read(out io.Reader) {
	r := bufio.NewReader(out)
	for {
		text, err := r.ReadString(0)
		if err != nil {
			return
		}
		var m struct {
			ID     int             `json:"id"`
			Method string          `json:"method"`
			Params json.RawMessage `json:"params"`
			reply
		}
		if json.Unmarshal([]byte(strings.TrimSuffix(text, "\x00")), &m) != nil {
			continue
		}
		b.mu.Lock()
		switch {
		case m.Method == "Runtime.exceptionThrown" || m.Method == "Log.entryAdded":
			b.console = append(b.console, string(m.Params))
		case m.ID > 0 && b.waiting[m.ID] != nil:
			b.waiting[m.ID] <- m.reply
			delete(b.waiting, m.ID)
		}
		b.mu.Unlock()
	}
}

func (b *browser) call(session, method string, params any, limit time.Duration) (json.RawMessage, error) {
	b.mu.Lock()
	b.last++
	id, answer := b.last, make(chan reply, 1)
	b.waiting[id] = answer
	b.mu.Unlock()
	m := map[string]any{"id": id, "method": method}
	if params != nil {
		m["params"] = params
	}
	if session != "" {
		m["sessionId"] = session
	}
	data, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	if _, err := b.in.Write(append(data, 0)); err != nil {
		return nil, err
	}
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case r := <-answer:
		if r.Error != nil {
			return nil, errors.New(method + ": " + r.Error.Message)
		}
		return r.Result, nil
	case <-late.C:
		return nil, fmt.Errorf("%s: no answer within %v", method, limit)
	}
}

func (b *browser) ask(session, method string, params, into any) {
	b.t.Helper()
	data, err := b.call(session, method, params, patience)
	if err == nil && into != nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *browser) do(method string, params any) {
	b.t.Helper()
	b.ask(b.session, method, params, nil)
}

// eval returns the value of a JavaScript expression as text.
func (b *browser) eval(expression string) string {
	b.t.Helper()
	var r struct {
		Result struct {
			Value any `json:"value"`
		} `json:"result"`
		Exception *struct {
			Text      string `json:"text"`
			Exception struct {
				Description string `json:"description"`
			} `json:"exception"`
		} `json:"exceptionDetails"`
	}
	b.ask(b.session, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &r)
	if r.Exception != nil {
		return "exception: " + r.Exception.Text + " " + r.Exception.Exception.Description
	}
	return fmt.Sprint(r.Result.Value)
}

// until waits until an expression has a value.
func (b *browser) until(expression, want string) {
	b.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		got := b.eval(expression)
		if got == want {
			return
		}
		select {
		case <-tick.C:
		case <-late.C:
			b.t.Fatalf("%s is %q, want %q", expression, got, want)
		}
	}
}

// text returns the text of the first element of a selector.
func text(selector string) string {
	return fmt.Sprintf("(document.querySelector(%q) || {textContent: 'missing'}).textContent.trim()", selector)
}

// has reports whether an element's text contains a part.
func has(selector, part string) string {
	return fmt.Sprintf("%s.includes(%q)", text(selector), part)
}

// press presses and releases a key.
func (b *browser) press(key string) {
	b.t.Helper()
	codes := map[string]int{"Tab": 9, "Enter": 13, "Escape": 27, "Home": 36, "End": 35, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
	p := map[string]any{"key": key, "code": key, "windowsVirtualKeyCode": codes[key], "type": "keyDown"}
	if key == "Enter" {
		p["text"] = "\r"
	}
	b.do("Input.dispatchKeyEvent", p)
	p["type"] = "keyUp"
	b.do("Input.dispatchKeyEvent", p)
}

// view sets the size of the window, its zoom, and the preferred colour scheme.
func (b *browser) view(width, height int, zoom float64, scheme string) {
	b.t.Helper()
	b.do("Emulation.setDeviceMetricsOverride", map[string]any{
		"width": int(float64(width) / zoom), "height": int(float64(height) / zoom), "deviceScaleFactor": zoom, "mobile": false,
	})
	b.do("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}})
}

// shoot takes a picture of the window.
func (b *browser) shoot() []byte {
	b.t.Helper()
	var r struct {
		Data string `json:"data"`
	}
	b.ask(b.session, "Page.captureScreenshot", map[string]any{"format": "png"}, &r)
	data, err := base64.StdEncoding.DecodeString(r.Data)
	if err != nil {
		b.t.Fatal(err)
	}
	return data
}

func (b *browser) visit(url string) {
	b.t.Helper()
	b.do("Page.navigate", map[string]any{"url": url})
}

// quiet fails the test if the browser complained.
func (b *browser) quiet() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, line := range b.console {
		b.t.Errorf("the browser says: %s", line)
	}
}
