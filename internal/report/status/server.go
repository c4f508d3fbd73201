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
	"github.com/trimtab/trimtab/internal/socket"
)

// clientTimeout is how long a client may take to send a request or to read one line. A client that hangs must not
// occupy the agent's memory.
const clientTimeout = 10 * time.Second

// errorBody is the body of every answer whose status is not 200.
type errorBody struct {
	Error string `json:"error"` // the message for the user
}

// Source is what the server reads from the agent.
type Source interface {
	// Status returns the state of the whole node.
	Status() api.Node
	// Explain returns all containers of a pod, or one container if container is not "". ok is false if the agent does
	// not know the pod or container.
	Explain(namespace, pod, container string) (found []api.Container, ok bool)
	// Events returns the events of the journal after sequence number since, and a channel that closes at the next event
	// or when ctx ends.
	Events(ctx context.Context, since uint64) ([]api.Event, <-chan struct{})
}

// Socket is an open status socket that is not served yet.
type Socket struct {
	path     string
	listener net.Listener
	release  func() // gives up the path, after the listener is closed
}

// Open opens a Unix socket that only the agent's user may use. The error is socket.ErrInUse if another agent serves the
// socket.
func Open(ctx context.Context, path string) (*Socket, error) {
	l, release, err := socket.Claim(ctx, socket.ServerSocket{Path: path, Mode: 0o600, Key: "paths.statusSocket", Program: "agent"})
	if err != nil {
		return nil, fmt.Errorf("serve status: %w", err)
	}
	return &Socket{path, l, release}, nil
}

// Wrap replaces the listener of the socket by the listener that wrap returns.
func (s *Socket) Wrap(wrap func(net.Listener) net.Listener) { s.listener = wrap(s.listener) }

// Serve answers requests from src until ctx ends, and then closes the socket.
func (s *Socket) Serve(ctx context.Context, src Source) error {
	defer s.release()
	// Streams of events end when this context ends, so that they do not delay the end of the server.
	answers, stop := context.WithCancel(ctx)
	defer stop()
	srv := &http.Server{
		Handler: handler(src), ReadHeaderTimeout: clientTimeout, IdleTimeout: clientTimeout, MaxHeaderBytes: 1 << 16,
		BaseContext: func(net.Listener) context.Context { return answers },
	}
	if err := web.ServeUntil(ctx, srv, s.listener); err != nil {
		return fmt.Errorf("serve status on %s: %w", s.path, err)
	}
	return nil
}

// handler returns the handler of all requests to the status socket.
func handler(src Source) http.Handler {
	const cannotPlan = "cannot show the effect of pods or of another configuration in advance"
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) {
		n := src.Status()
		// Programs that read the answer iterate over these lists, so an empty list must not be null.
		n.Attachments, n.Containers = notNull(n.Attachments), notNull(n.Containers)
		n.CPUs.Nodes = notNull(n.CPUs.Nodes)
		writeJSON(w, http.StatusOK, n)
	})
	mux.HandleFunc("GET /v1/explain", func(w http.ResponseWriter, r *http.Request) { serveExplain(w, r, src) })
	mux.HandleFunc("GET /v1/events", func(w http.ResponseWriter, r *http.Request) { serveEvents(w, r, src) })
	mux.HandleFunc("GET /v1/recording", optional(src, "cannot record", serveRecording))
	mux.HandleFunc("GET /v1/config", optional(src, "does not report the sources of its configuration", serveConfiguration))
	mux.HandleFunc("GET /v1/usage", optional(src, "does not report how much CPU time containers use", serveUsage))
	mux.HandleFunc("POST /v1/release", optional(src, "cannot restore the values that it changed", serveRelease))
	mux.HandleFunc("POST /v1/plan/adopt", optional(src, "cannot take over from another agent", servePlanAdoption))
	mux.HandleFunc("POST /v1/plan/pods", optional(src, cannotPlan, func(w http.ResponseWriter, r *http.Request, can Planner) { servePlan(w, r, can.PlanPods) }))
	mux.HandleFunc("POST /v1/plan/config", optional(src, cannotPlan, func(w http.ResponseWriter, r *http.Request, can Planner) { servePlan(w, r, can.PlanConfig) }))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, http.StatusNotFound, errorBody{"unknown request: " + r.Method + " " + r.URL.Path})
	})
	return mux
}

// optional returns a handler for a request that only some sources serve. If src implements T, the handler calls serve.
// Otherwise it answers with an error: the words "this agent" and the text in cannot, such as "cannot record".
func optional[T any](src Source, cannot string, serve func(w http.ResponseWriter, r *http.Request, can T)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if can, ok := src.(T); ok {
			serve(w, r, can)
		} else {
			writeJSON(w, http.StatusNotFound, errorBody{"this agent " + cannot})
		}
	}
}

// notNull returns an empty list for nil, because JSON encodes nil as null.
func notNull[T any](l []T) []T {
	if l == nil {
		return []T{}
	}
	return l
}

// writeJSON answers a request with a status code and v as JSON.
func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	extendDeadline(w)
	w.WriteHeader(code)
	// Encode fails only if the client has disconnected.
	_ = json.NewEncoder(w).Encode(v)
}

// reply answers with v, or with an error and code if err is not nil.
func reply(w http.ResponseWriter, v any, err error, code int) {
	if err != nil {
		writeJSON(w, code, errorBody{err.Error()})
		return
	}
	writeJSON(w, http.StatusOK, v)
}

// extendDeadline sets the write deadline: the client must read the next answer or line within clientTimeout.
func extendDeadline(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(clientTimeout))
}

// serveExplain answers with the containers of a pod.
func serveExplain(w http.ResponseWriter, r *http.Request, src Source) {
	q := r.URL.Query()
	namespace, pod, container := q.Get("namespace"), q.Get("pod"), q.Get("container")
	if namespace == "" || pod == "" {
		writeJSON(w, http.StatusBadRequest, errorBody{"the parameters namespace and pod are both needed"})
		return
	}
	found, ok := src.Explain(namespace, pod, container)
	if !ok {
		what := fmt.Sprintf("pod %s/%s", namespace, pod)
		if container != "" {
			what = fmt.Sprintf("container %s of %s", container, what)
		}
		writeJSON(w, http.StatusNotFound, errorBody{"the agent knows no " + what + " on this node"})
		return
	}
	writeJSON(w, http.StatusOK, found)
}

// serveEvents writes the events of the journal as JSON lines. With the parameter follow=true, it then writes new events
// while the client is connected.
func serveEvents(w http.ResponseWriter, r *http.Request, src Source) {
	q := r.URL.Query()
	var since uint64
	if s := q.Get("since"); s != "" {
		var err error
		if since, err = strconv.ParseUint(s, 10, 64); err != nil {
			writeJSON(w, http.StatusBadRequest, errorBody{"the parameter since must be a sequence number, not " + strconv.Quote(s)})
			return
		}
	}
	follow := q.Get("follow") == "true"
	w.Header().Set("Content-Type", "application/jsonlines")
	out, flush := json.NewEncoder(w), http.NewResponseController(w)
	for {
		list, more := src.Events(r.Context(), since)
		extendDeadline(w)
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
