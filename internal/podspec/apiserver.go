package podspec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// APIServerOptions configure how to read a node's pods from the API server.
type APIServerOptions struct {
	// URL is the server's address, without a path.
	URL string
	// Client sends requests with the agent's credentials. It must have no timeout, because
	// a watch is a long request.
	Client *http.Client
	// Node is the node's name: only its pods are requested.
	Node string
	// Note is called with the error of each request, nil for a success; nil if not needed.
	Note func(error)
	// Begin blocks until the first request may be sent; nil for at once.
	Begin func(context.Context)
}

// APIServer reads specs from the API server: one list, then watches, each from the
// version where the last one ended. It keeps only the fields of a PodSpec.
type APIServer struct {
	o APIServerOptions

	mu      sync.Mutex // guards all below
	waiting map[string][]chan *lifecycle.PodSpec
}

const (
	// watchTime is the least duration of one watch, and half of the longest. The server
	// ends it then, so that a load balancer that dropped the connection is noticed.
	watchTime = 5 * time.Minute
	// maxSilence is how long a watch may send nothing: the server sends a bookmark about
	// once a minute.
	maxSilence = 3 * time.Minute
	// maxEvent bounds one event of a watch: an object in the API server's store has
	// about 1.5 MiB at most.
	maxEvent = 16 << 20
)

// errExpired: the server no longer has the version from which the watch was to begin.
var errExpired = errors.New("the watch is too old; the agent lists the pods again")

// NewAPIServer returns a source. It sends no request before Follow.
func NewAPIServer(o APIServerOptions) *APIServer {
	if o.Note == nil {
		o.Note = func(error) {}
	}
	return &APIServer{o: o, waiting: map[string][]chan *lifecycle.PodSpec{}}
}

// Source names the source.
func (*APIServer) Source() lifecycle.Source { return lifecycle.FromAPIServer }

// Begin implements Beginner.
func (a *APIServer) Begin(ctx context.Context) {
	if a.o.Begin != nil {
		a.o.Begin(ctx)
	}
}

// Soon does nothing: the watch reports changes at once.
func (*APIServer) Soon() {}

// Close ends idle connections.
func (a *APIServer) Close() error {
	a.o.Client.CloseIdleConnections()
	return nil
}

// Get waits for the watch to report a pod. The kubelet learns of a pod from the same
// server at about the same time.
func (a *APIServer) Get(ctx context.Context, uid string) (Update, error) {
	told := make(chan *lifecycle.PodSpec, 1)
	a.mu.Lock()
	a.waiting[uid] = append(a.waiting[uid], told)
	a.mu.Unlock()
	select {
	case s := <-told:
		return Update{All: map[string]*lifecycle.PodSpec{uid: s}}, nil
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	left := a.waiting[uid][:0]
	for _, w := range a.waiting[uid] {
		if w != told {
			left = append(left, w)
		}
	}
	if a.waiting[uid] = left; len(left) == 0 {
		delete(a.waiting, uid)
	}
	return Update{}, ErrLater
}

// deliver passes a spec to the callers that wait for it.
func (a *APIServer) deliver(s *lifecycle.PodSpec) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.waiting[s.UID] {
		w <- s // never blocks: capacity 1
	}
	delete(a.waiting, s.UID)
}

// Follow lists the node's pods and watches them. It ends when the server does not
// answer.
func (a *APIServer) Follow(ctx context.Context, tell func(Update)) error {
	// The first list may come from the server's cache; after a gap it must be newer.
	for from := "0"; ; from = "" {
		version, err := a.list(ctx, from, tell)
		if err != nil {
			return err
		}
		watched := -1
		for ; err == nil; watched++ {
			version, err = a.watch(ctx, version, tell)
		}
		// If the server reports that for a list it has just sent, the next request follows after a pause.
		if !errors.Is(err, errExpired) || watched == 0 && from == "" {
			return err
		}
	}
}

// get sends one request; the caller closes the body.
func (a *APIServer) get(ctx context.Context, query url.Values) (io.ReadCloser, error) {
	query.Set("fieldSelector", "spec.nodeName="+a.o.Node)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.o.URL+"/api/v1/pods?"+query.Encode(), http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	res, err := a.o.Client.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode == http.StatusOK {
		return res.Body, nil
	}
	_ = res.Body.Close()
	switch res.StatusCode {
	case http.StatusGone:
		return nil, errExpired
	case http.StatusUnauthorized:
		return nil, fmt.Errorf("%s: %s: the server does not accept the agent's token", a.o.URL, res.Status)
	case http.StatusForbidden:
		return nil, fmt.Errorf(`%s: %s: give the agent's role "list" and "watch" on pods`, a.o.URL, res.Status)
	}
	return nil, fmt.Errorf("%s: %s", a.o.URL, res.Status)
}

// list reports all pods and returns the list's version.
func (a *APIServer) list(ctx context.Context, from string, tell func(Update)) (string, error) {
	limited, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	query := url.Values{}
	if from != "" {
		query.Set("resourceVersion", from)
	}
	body, err := a.get(limited, query)
	if a.o.Note(err); err != nil {
		return "", err
	}
	defer body.Close()
	l, err := decodeList(&io.LimitedReader{R: body, N: maxAnswer}, a.Source())
	if err != nil {
		return "", fmt.Errorf("%s: %w", a.o.URL, err)
	}
	all, twice, err := listed(l.pods, a.o.Node)
	if err != nil {
		return "", fmt.Errorf("%s: %w", a.o.URL, err)
	}
	tell(Update{All: all, Full: true, Pending: l.pending, Unread: append(l.unread, twice...)})
	for _, s := range all {
		a.deliver(s)
	}
	return l.version, nil
}

// watchEvent is one event of a watch.
type watchEvent struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// watch reports changes since a version, until the server ends the watch, and returns
// the last version.
func (a *APIServer) watch(ctx context.Context, version string, tell func(Update)) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	asked := watchTime + rand.N(watchTime) //nolint:gosec // only spreads load
	body, err := a.get(ctx, url.Values{
		"watch": {"true"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {version},
		"timeoutSeconds": {strconv.Itoa(int(asked / time.Second))},
	})
	if a.o.Note(err); err != nil {
		return "", err
	}
	defer body.Close()
	silent := time.AfterFunc(maxSilence, cancel)
	defer silent.Stop()
	events := &io.LimitedReader{R: body, N: maxEvent}
	for d := json.NewDecoder(events); ; {
		var e watchEvent
		if err := d.Decode(&e); errors.Is(err, io.EOF) {
			return version, nil
		} else if err != nil {
			return "", fmt.Errorf("%s: watch pods: %w", a.o.URL, err)
		}
		events.N = maxEvent
		silent.Reset(maxSilence)
		if version, err = a.applyEvent(e, version, tell); err != nil {
			return "", err
		}
	}
}

// applyEvent reports the change of an event, and returns the version after it.
func (a *APIServer) applyEvent(e watchEvent, version string, tell func(Update)) (string, error) {
	if e.Type == "ERROR" {
		var s struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
		}
		if err := json.Unmarshal(e.Object, &s); err == nil && s.Code == http.StatusGone {
			return "", errExpired
		}
		return "", fmt.Errorf("%s: watch pods: %d %.200s", a.o.URL, s.Code, s.Message)
	}
	var p v1Pod
	// Names and version are read first: a string in place of a number is an error of this pod only.
	err, ofPod := json.Unmarshal(e.Object, &p), (*json.UnmarshalTypeError)(nil)
	if err != nil && !errors.As(err, &ofPod) {
		return "", fmt.Errorf("%s: watch pods: %w", a.o.URL, err)
	}
	if p.Metadata.Version != "" {
		version = p.Metadata.Version
	}
	if e.Type == "BOOKMARK" {
		return version, nil
	}
	var s *lifecycle.PodSpec
	if err == nil {
		s, err = p.spec(a.Source())
	}
	switch uid := p.uid(); {
	case e.Type == "DELETED":
		tell(Update{Gone: uid})
	case err != nil:
		tell(Update{Unread: []Unread{{uid, err}}})
	default:
		tell(one(s, p.pending()))
		a.deliver(s)
	}
	return version, nil
}
