package status

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/web"
)

// clientTimeout is how long a client may take to send a request or to read one line. A client that hangs must not
// occupy the agent's memory.
const clientTimeout = 10 * time.Second

// failure is the body of every answer that is not 200.
type failure struct {
	Error string `json:"error"`
}

// Source is the agent's side of the server.
type Source interface {
	Status() api.Node
	// Explain returns the containers of a pod, or one of them. ok is false if the agent knows no such pod or
	// container.
	Explain(namespace, pod, container string) (found []api.Container, ok bool)
	// Events returns the journal after sequence number since, and a channel
	// that is closed when there is more or ctx ends.
	Events(ctx context.Context, since uint64) ([]api.Event, <-chan struct{})
}

// Socket is an open status socket that is not served yet.
type Socket struct {
	path     string
	listener net.Listener
	release  func()
}

// Open opens a Unix socket that only its owner may use. The error is socket.ErrInUse if another agent has it.
func Open(ctx context.Context, path string) (*Socket, error) {
	l, release, err := listen(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("serve status: %w", err)
	}
	return &Socket{path, l, release}, nil
}

// Wrap replaces the listener by the one that wrap returns.
func (s *Socket) Wrap(wrap func(net.Listener) net.Listener) { s.listener = wrap(s.listener) }

// Serve answers questions about src until ctx ends, and closes the socket.
func (s *Socket) Serve(ctx context.Context, src Source) error {
	defer s.release()
	// Streams of events end with this context, and not only when their clients disconnect.
	answers, stop := context.WithCancel(ctx)
	defer stop()
	srv := &http.Server{
		Handler: handler(src), ReadHeaderTimeout: clientTimeout, IdleTimeout: clientTimeout, MaxHeaderBytes: 1 << 16,
		BaseContext: func(net.Listener) context.Context { return answers },
	}
	if err := web.Until(ctx, srv, s.listener); err != nil {
		return fmt.Errorf("serve status on %s: %w", s.path, err)
	}
	return nil
}

func handler(src Source) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) {
		n := src.Status()
		// Programs that read this iterate over lists, so an empty list must not be null.
		n.Attachments, n.Containers = list(n.Attachments), list(n.Containers)
		n.CPUs.Nodes = list(n.CPUs.Nodes)
		answer(w, http.StatusOK, n)
	})
	mux.HandleFunc("GET /v1/explain", func(w http.ResponseWriter, r *http.Request) { explain(w, r, src) })
	mux.HandleFunc("GET /v1/events", func(w http.ResponseWriter, r *http.Request) { events(w, r, src) })
	mux.HandleFunc("GET /v1/recording", func(w http.ResponseWriter, r *http.Request) { record(w, r, src) })
	mux.HandleFunc("GET /v1/config", func(w http.ResponseWriter, _ *http.Request) { configuration(w, src) })
	mux.HandleFunc("GET /v1/usage", func(w http.ResponseWriter, _ *http.Request) { usage(w, src) })
	mux.HandleFunc("POST /v1/release", func(w http.ResponseWriter, r *http.Request) { release(w, r, src) })
	plans(mux, src)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		answer(w, http.StatusNotFound, failure{"unknown request: " + r.Method + " " + r.URL.Path})
	})
	return mux
}

func list[T any](l []T) []T {
	if l == nil {
		return []T{}
	}
	return l
}

func answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	deadline(w)
	w.WriteHeader(code)
	// This fails only if the client has disconnected.
	_ = json.NewEncoder(w).Encode(v)
}

// reply answers with v, or with an error and its code.
func reply(w http.ResponseWriter, v any, err error, code int) {
	if err != nil {
		answer(w, code, failure{err.Error()})
		return
	}
	answer(w, http.StatusOK, v)
}

// deadline gives the client time to read the next write.
func deadline(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(clientTimeout))
}

func explain(w http.ResponseWriter, r *http.Request, src Source) {
	q := r.URL.Query()
	namespace, pod, container := q.Get("namespace"), q.Get("pod"), q.Get("container")
	if namespace == "" || pod == "" {
		answer(w, http.StatusBadRequest, failure{"namespace and pod are both needed"})
		return
	}
	found, ok := src.Explain(namespace, pod, container)
	if !ok {
		what := fmt.Sprintf("pod %s/%s", namespace, pod)
		if container != "" {
			what = fmt.Sprintf("container %s of %s", container, what)
		}
		answer(w, http.StatusNotFound, failure{"the agent knows no " + what + " on this node"})
		return
	}
	answer(w, http.StatusOK, found)
}

// events writes the journal as JSON lines. With follow it continues while the client is connected.
func events(w http.ResponseWriter, r *http.Request, src Source) {
	q := r.URL.Query()
	var since uint64
	if s := q.Get("since"); s != "" {
		var err error
		if since, err = strconv.ParseUint(s, 10, 64); err != nil {
			answer(w, http.StatusBadRequest, failure{"since must be a sequence number, not " + strconv.Quote(s)})
			return
		}
	}
	follow := q.Get("follow") == "true"
	w.Header().Set("Content-Type", "application/jsonlines")
	out, flush := json.NewEncoder(w), http.NewResponseController(w)
	for {
		list, more := src.Events(r.Context(), since)
		deadline(w)
		for _, e := range list {
			if err := out.Encode(e); err != nil {
				return
			}
			since = e.Seq
		}
		if err := flush.Flush(); err != nil || !follow {
			return
		}
		select {
		case <-more:
		case <-r.Context().Done():
		}
		if r.Context().Err() != nil {
			return
		}
	}
}
