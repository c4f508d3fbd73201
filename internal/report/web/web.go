// Package web serves the agent's HTTP endpoints for programs: metrics, liveness and readiness. For users there are the
// status socket and the node's web page, which web also serves if the page is enabled.
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
	// clientTimeout is how long a client may take to send a request. A client may take twice as long to read the answer.
	// Without the timeout, clients that hang would occupy memory.
	clientTimeout = 10 * time.Second
	// ShutdownTimeout is how long ServeUntil waits for running requests after its context has ended.
	ShutdownTimeout = time.Second
	// aliveTimeout is how long Options.Alive may take.
	aliveTimeout = 2 * time.Second
	// pagePath is the path of the node's web page.
	pagePath = "/page/"
)

// Options configure the server.
type Options struct {
	// Metrics serves the metrics page at /metrics.
	Metrics http.Handler
	// Alive returns an error if the process of the agent must be restarted. It returns no error if another program does
	// not answer, such as the runtime or the API server.
	Alive func(context.Context) error
	// Ready returns an error while the agent does not serve the node's containers yet.
	Ready func() error
	// ReadyNote returns a line to add to the answer that the agent is ready; nil for no line.
	ReadyNote func() string
	// Page serves the node's web page below /page/; nil for no page.
	Page http.Handler
	Log  *slog.Logger
}

// Serve serves Handler on a TCP address until ctx ends.
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

// serve serves Handler on a listener until ctx ends.
func serve(ctx context.Context, l net.Listener, o Options) error {
	srv := &http.Server{
		Handler: Handler(o), ReadTimeout: clientTimeout, WriteTimeout: 2 * clientTimeout, IdleTimeout: time.Minute, MaxHeaderBytes: 1 << 14,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}
	if err := ServeUntil(ctx, srv, l); err != nil {
		return fmt.Errorf("serve http on %s: %w", l.Addr(), err)
	}
	return nil
}

// ServeUntil serves until ctx ends. It then waits up to ShutdownTimeout for running requests.
func ServeUntil(ctx context.Context, srv *http.Server, l net.Listener) error {
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), ShutdownTimeout)
	defer cancel()
	if err := srv.Shutdown(late); err != nil {
		_ = srv.Close() // end the requests that did not end in time
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Handler serves /metrics, /healthz and /readyz, and the node's web page if there is one.
func Handler(o Options) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", o.Metrics)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		limited, cancel := context.WithTimeout(r.Context(), aliveTimeout)
		defer cancel()
		writeResult(w, o.Alive(limited))
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		err := o.Ready()
		writeResult(w, err)
		if err != nil || o.ReadyNote == nil {
			return
		}
		if line := o.ReadyNote(); line != "" {
			fmt.Fprintln(w, line)
		}
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprint(w, "trimtab\n/metrics\n/healthz\n/readyz\n")
		if o.Page != nil {
			fmt.Fprintln(w, pagePath)
		}
	})
	if o.Page != nil {
		mux.Handle(pagePath, o.Page)
	}
	return mux
}

// writeResult answers a request with "ok", or with status 503 and the error.
func writeResult(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, err)
		return
	}
	fmt.Fprintln(w, "ok")
}
