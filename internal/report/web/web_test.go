package web

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func options(alive, ready error) Options {
	return Options{
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "page\n") }),
		Alive:   func(context.Context) error { return alive },
		Ready:   func() error { return ready },
		Log:     slog.New(slog.DiscardHandler),
	}
}

func telling(ready error) Options {
	o := options(nil, ready)
	o.ReadyNote = func() string { return "bypass: in force" }
	return o
}

func paged() Options {
	o := options(nil, nil)
	o.Page = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "shown: "+r.URL.Path) })
	return o
}

func TestAnswers(t *testing.T) {
	bad := errors.New("no runtime is attached")
	for _, tc := range []struct {
		name, method, path string
		o                  Options
		code               int
		body               string
	}{
		{"metrics", "GET", "/metrics", options(nil, nil), 200, "page\n"},
		{"alive", "GET", "/healthz", options(nil, bad), 200, "ok\n"},
		{"alive by head", "HEAD", "/healthz", options(nil, bad), 200, "ok\n"},
		{"hangs", "GET", "/healthz", options(errors.New("stuck"), nil), 503, "stuck\n"},
		{"ready", "GET", "/readyz", options(nil, nil), 200, "ok\n"},
		{"ready by whom", "GET", "/readyz", telling(nil), 200, "ok\nbypass: in force\n"},
		{"not ready by nobody", "GET", "/readyz", telling(bad), 503, "no runtime is attached\n"},
		{"not ready says why", "GET", "/readyz", options(nil, bad), 503, "no runtime is attached\n"},
		{"index", "GET", "/", options(nil, nil), 200, "trimtab\n/metrics\n/healthz\n/readyz\n"},
		{"index with a page", "GET", "/", paged(), 200, "trimtab\n/metrics\n/healthz\n/readyz\n/page/\n"},
		{"the page", "GET", "/page/app.js", paged(), 200, "shown: /page/app.js"},
		{"no page", "GET", "/page/", options(nil, nil), 404, "404 page not found\n"},
		{"nothing else", "GET", "/debug/pprof/", options(nil, nil), 404, "404 page not found\n"},
		{"read only", "POST", "/metrics", options(nil, nil), 405, "Method Not Allowed\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			Handler(tc.o).ServeHTTP(w, httptest.NewRequest(tc.method, tc.path, nil))
			if w.Code != tc.code || w.Body.String() != tc.body {
				t.Errorf("%d %q, want %d %q", w.Code, w.Body, tc.code, tc.body)
			}
		})
	}
}

func TestHealthHasADeadline(t *testing.T) {
	o := options(nil, nil)
	o.Alive = func(ctx context.Context) error {
		if d, ok := ctx.Deadline(); !ok || time.Until(d) > aliveTimeout {
			return errors.New("no deadline")
		}
		return nil
	}
	w := httptest.NewRecorder()
	Handler(o).ServeHTTP(w, httptest.NewRequest("GET", "/healthz", nil))
	if w.Code != 200 {
		t.Error(w.Body)
	}
}

// TestGracefulEnd: a running answer is finished, then Serve returns.
func TestGracefulEnd(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	asked, finish := make(chan struct{}), make(chan struct{})
	o := options(nil, nil)
	o.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(asked)
		<-finish
		_, _ = io.WriteString(w, "late but whole\n")
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, l, o) }()
	body := make(chan string, 1)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	go func() {
		resp, err := client.Get("http://" + l.Addr().String() + "/metrics")
		if err != nil {
			body <- err.Error()
			return
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		body <- string(b)
	}()
	<-asked
	stop()
	close(finish)
	if got := <-body; got != "late but whole\n" {
		t.Errorf("got %q", got)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestAddressInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	err = Serve(t.Context(), l.Addr().String(), options(nil, nil))
	if err == nil || !strings.Contains(err.Error(), "serve http: ") {
		t.Errorf("got %v", err)
	}
}
