// Package web serves what programs ask over HTTP: the metrics page, and whether the agent is alive and ready. It
// owns the listener and decides nothing. Users ask at the status socket, or at the node's page if that is on.
package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

const (
	// clientTimeout is how long a client may take. A client that hangs must not occupy memory.
	clientTimeout = 10 * time.Second
	// ShutdownNotice is how long running answers may take after the end of ctx.
	ShutdownNotice = time.Second
	// deadline is how long the agent may take to show that it is alive.
	deadline = 2 * time.Second
	// page is the path of the node's page.
	page = "/page/"
)

// Options configure the server.
type Options struct {
	Metrics http.Handler
	// Alive reports why someone should restart the process. Only faults of the process itself count, and not a
	// runtime or an API server that does not answer.
	Alive func(context.Context) error
	// Ready reports why the agent does not serve the node's containers yet.
	Ready func() error
	// ReadyNote is a line after the answer that the agent is ready; nil for none.
	ReadyNote func() string
	// Page answers below /page/; nil for no page.
	Page http.Handler
	Log  *slog.Logger
}

// Serve answers on a TCP address until ctx ends.
func Serve(ctx context.Context, address string, o Options) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if ctx.Err() != nil && l == nil {
		return nil // ctx ended before the server began
	}
	if err != nil {
		return fmt.Errorf("serve http: %w", err)
	}
	return serve(ctx, l, o)
}

func serve(ctx context.Context, l net.Listener, o Options) error {
	srv := &http.Server{
		Handler: Handler(o), ReadTimeout: clientTimeout, WriteTimeout: 2 * clientTimeout, IdleTimeout: time.Minute, MaxHeaderBytes: 1 << 14,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}
	if err := Until(ctx, srv, l); err != nil {
		return fmt.Errorf("serve http on %s: %w", l.Addr(), err)
	}
	return nil
}

// Until serves until ctx ends, and lets running answers end within Farewell.
func Until(ctx context.Context, srv *http.Server, l net.Listener) error {
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), ShutdownNotice)
	defer cancel()
	if err := srv.Shutdown(late); err != nil {
		_ = srv.Close() // this ends what did not end in time
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Handler answers /metrics, /healthz and /readyz, and serves the page if there is one.
func Handler(o Options) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", o.Metrics)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		limited, cancel := context.WithTimeout(r.Context(), deadline)
		defer cancel()
		answer(w, o.Alive(limited))
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		err := o.Ready()
		answer(w, err)
		if line := o.line(); err == nil && line != "" {
			fmt.Fprintln(w, line)
		}
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprint(w, "trimtab\n/metrics\n/healthz\n/readyz\n")
		if o.Page != nil {
			fmt.Fprintln(w, page)
		}
	})
	if o.Page != nil {
		mux.Handle(page, o.Page)
	}
	return mux
}

func (o Options) line() string {
	if o.ReadyNote == nil {
		return ""
	}
	return o.ReadyNote()
}

// answer writes ok, or one line with the reason.
func answer(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, err)
		return
	}
	fmt.Fprintln(w, "ok")
}
