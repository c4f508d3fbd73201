package http2_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/trimtab/trimtab/internal/attach/relay"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// startServer starts an HTTP/2 server without TLS.
func startServer(t *testing.T) (address string) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "here")
	})
	mux.HandleFunc("/bytes/{n}", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.PathValue("n"))
		_, _ = w.Write(some(n))
	})
	sum := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		sum := sha256.New()
		n, _ := io.Copy(sum, r.Body)
		_, _ = fmt.Fprintf(w, "%d bytes %x, %d bytes of headers", n, sum.Sum(nil), len(r.Header.Get("X-Long")))
		w.Header().Set("X-Sum", "told")
	}
	mux.HandleFunc("/sum", sum)
	mux.HandleFunc("/held/sum", sum)
	server := &http.Server{Handler: mux, Protocols: new(http.Protocols)}
	server.Protocols.SetUnencryptedHTTP2(true)
	l := listen(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() { _ = server.Close(); <-done })
	return l.Addr().String()
}

// startNghttpd starts a server of nghttp2 with its own files. With one of them it pushes another.
func startNghttpd(t *testing.T) (address string) {
	t.Helper()
	docs := t.TempDir()
	for name, n := range map[string]int{"index.html": 100, "held/index.html": 100, "large": 5 << 20, "pushes": 100, "pushed": 300_000} {
		path := filepath.Join(docs, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, some(n), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	l := listen(t) // finds a free port
	address = l.Addr().String()
	_, port, _ := net.SplitHostPort(address)
	_ = l.Close()
	cmd := exec.CommandContext(t.Context(), tool(t, "nghttpd"), "-a", "127.0.0.1", "-d", docs, "--no-tls", "--echo-upload", "-p/pushes=/pushed", port)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close()
			return address
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

func some(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 7 / 3)
	}
	return b
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// startRelay relays to a server and reports how many connections it relayed.
func startRelay(t *testing.T, to string) (address string, relayed func() int) {
	t.Helper()
	l := listen(t)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	var mu sync.Mutex
	n := 0
	all.Go(func() {
		for {
			caller, err := l.Accept()
			if err != nil {
				return
			}
			backend, err := net.Dial("tcp", to)
			if err != nil {
				t.Error(err)
				_ = caller.Close()
				return
			}
			mu.Lock()
			n++
			mu.Unlock()
			// Errors of peers are expected: the clients here break every rule.
			all.Go(func() { _ = relay.New(caller, backend, relay.Options{HandlingFor: hold}).Run(ctx) })
		}
	})
	t.Cleanup(func() { cancel(); _ = l.Close(); all.Wait() })
	return l.Addr().String(), func() int { mu.Lock(); defer mu.Unlock(); return n }
}

// hold makes the relay hold requests with a message, and send them on unchanged.
func hold(path string) relay.Handling {
	if !strings.HasPrefix(path, "/held/") {
		return relay.Handling{}
	}
	return relay.Handling{Hook: func(context.Context, []byte) relay.Verdict { return relay.Verdict{} }}
}

// tool finds a program; in CI a missing one fails the test.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	if _, absent := os.Stat("/usr/sbin/" + name); absent == nil {
		return "/usr/sbin/" + name
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("%v: make deps installs it", err)
	}
	t.Skipf("%v: make deps installs it", err)
	return ""
}

// built returns the folder of a tool of test/tools, and builds the tool if needed.
func built(t *testing.T, name string) string {
	t.Helper()
	_, file, _, _ := runtime.Caller(0)
	cmd := exec.CommandContext(t.Context(), filepath.Join(filepath.Dir(file), "../tools/build.sh"), name)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("build %s: %v", name, err)
	}
	return strings.TrimSpace(string(out))
}

// run runs a program and returns its output. The exit statuses in statuses are accepted, too.
func run(t *testing.T, statuses []int, program string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		for _, s := range statuses {
			if s == exit.ExitCode() {
				return string(out)
			}
		}
	}
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return string(out)
}
