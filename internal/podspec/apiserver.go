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
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// APIServerOptions configure how to read a node's pods from the API server.
type APIServerOptions struct {
	// URL is the server's address, without a path.
	URL string
	// Client sends requests with the agent's credentials. It must have no timeout, because a watch is a long
	// request.
	Client *http.Client
	// Node is the node's name. APIServer requests only the pods of this node.
	Node string
	// OnResult is called after each request, with the error of the request, or with nil if the request succeeded. OnResult
	// may be nil.
	OnResult func(error)
	// Begin blocks until the first request may be sent. If Begin is nil, the first request may be sent at once.
	Begin func(context.Context)
}

// APIServer reads specs from the API server: it lists the pods, and then watches them. Each watch starts from the
// resourceVersion at which the previous request ended. If the server no longer has that version, APIServer lists the
// pods again. It reads only the fields of lifecycle.PodSpec, and labels and annotations.
type APIServer struct {
	o APIServerOptions

	mu      sync.Mutex                           // guards the fields below
	waiting map[string][]chan *lifecycle.PodSpec // by pod UID: one channel for each caller of Get that waits for this pod
}

const (
	// minWatchTime is the shortest time that the agent requests for a watch. The longest is twice as long. After the
	// requested time the server ends the watch, and the agent starts another.
	minWatchTime = 5 * time.Minute
	// maxWatchSilence is how long the server may send nothing on a watch. The server sends a bookmark about once a minute,
	// so a longer silence means that the connection is lost.
	maxWatchSilence = 3 * time.Minute
	// maxEvent is the largest size of one event of a watch, in bytes. An object in the API server's store has at most
	// about 1.5 MiB.
	maxEvent = 16 << 20
)

// errExpired means that the server no longer has the resourceVersion from which a watch should begin.
var errExpired = errors.New("the API server no longer has the resourceVersion of the watch; the agent lists the pods again")

// NewAPIServer returns a source that reads from the API server. It sends no request before Watch is called.
func NewAPIServer(o APIServerOptions) *APIServer {
	if o.OnResult == nil {
		o.OnResult = func(error) {}
	}
	return &APIServer{o: o, waiting: map[string][]chan *lifecycle.PodSpec{}}
}

// Source names the source.
func (*APIServer) Source() lifecycle.Source { return lifecycle.FromAPIServer }

// AwaitStart blocks until the first request may be sent, or ctx ends (see DelayedSource).
func (a *APIServer) AwaitStart(ctx context.Context) {
	if a.o.Begin != nil {
		a.o.Begin(ctx)
	}
}

// PollSoon does nothing, because the watch reports changes at once.
func (*APIServer) PollSoon() {}

// Close ends idle connections.
func (a *APIServer) Close() error {
	a.o.Client.CloseIdleConnections()
	return nil
}

// Get waits until the watch reports a pod, or ctx ends. It sends no request of its own, because the watch reports a pod
// at about the time when the kubelet gets the pod.
func (a *APIServer) Get(ctx context.Context, uid string) (Update, error) {
	specs := make(chan *lifecycle.PodSpec, 1)
	a.mu.Lock()
	a.waiting[uid] = append(a.waiting[uid], specs)
	a.mu.Unlock()
	select {
	case s := <-specs:
		return Update{All: map[string]*lifecycle.PodSpec{uid: s}}, nil
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiting[uid] = slices.DeleteFunc(a.waiting[uid], func(w chan *lifecycle.PodSpec) bool { return w == specs })
	if len(a.waiting[uid]) == 0 {
		delete(a.waiting, uid)
	}
	return Update{}, ErrNotReportedYet
}

// deliver sends a spec to the callers of Get that wait for the pod of this spec.
func (a *APIServer) deliver(s *lifecycle.PodSpec) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.waiting[s.UID] {
		w <- s // never blocks: capacity 1
	}
	delete(a.waiting, s.UID)
}

// Watch lists the node's pods and then watches them. It returns when a request fails.
func (a *APIServer) Watch(ctx context.Context, report func(Update)) error {
	// The first list may come from the server's cache (resourceVersion 0). A list after an expired watch must be newer.
	for from := "0"; ; from = "" {
		version, err := a.list(ctx, from, report)
		if err != nil {
			return err
		}
		watched := -1
		for ; err == nil; watched++ {
			version, err = a.watchOnce(ctx, version, report)
		}
		// If a watch from the newest list expires at once, another list does not help. Watch then returns the error, so
		// that its caller pauses before the next call.
		if !errors.Is(err, errExpired) || watched == 0 && from == "" {
			return err
		}
	}
}

// get sends one request for pods of the node. The caller must close the body.
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

// list requests and reports all pods of the node, and returns the resourceVersion of the list. from is the oldest
// acceptable version; "" means the newest.
func (a *APIServer) list(ctx context.Context, from string, report func(Update)) (string, error) {
	limited, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	query := url.Values{}
	if from != "" {
		query.Set("resourceVersion", from)
	}
	body, err := a.get(limited, query)
	if a.o.OnResult(err); err != nil {
		return "", err
	}
	defer body.Close()
	l, err := decodeList(&io.LimitedReader{R: body, N: maxAnswer}, a.Source())
	if err != nil {
		return "", fmt.Errorf("%s: %w", a.o.URL, err)
	}
	u, err := l.toUpdate(a.o.Node)
	if err != nil {
		return "", fmt.Errorf("%s: %w", a.o.URL, err)
	}
	report(u)
	for _, s := range u.All {
		a.deliver(s)
	}
	return l.version, nil
}

// watchEvent is one event of a watch.
type watchEvent struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// watchOnce reports changes since a resourceVersion, until the server ends the watch. It returns the resourceVersion of
// the last event.
func (a *APIServer) watchOnce(ctx context.Context, version string, report func(Update)) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	asked := minWatchTime + rand.N(minWatchTime) //nolint:gosec // only spreads load
	body, err := a.get(ctx, url.Values{
		"watch": {"true"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {version},
		"timeoutSeconds": {strconv.Itoa(int(asked / time.Second))},
	})
	if a.o.OnResult(err); err != nil {
		return "", err
	}
	defer body.Close()
	silent := time.AfterFunc(maxWatchSilence, cancel)
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
		silent.Reset(maxWatchSilence)
		if version, err = a.applyEvent(e, version, report); err != nil {
			return "", err
		}
	}
}

// applyEvent reports the change of an event, and returns the resourceVersion after the event.
func (a *APIServer) applyEvent(e watchEvent, version string, report func(Update)) (string, error) {
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
	// If a value has the wrong type, the decoder still reads the rest of the pod. So names and version of the pod are
	// known, and the error concerns only this pod.
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
		report(Update{EndedUID: uid})
	case err != nil:
		report(Update{Unread: []UnreadPod{{uid, err}}})
	default:
		report(singleUpdate(s, p.pending()))
		a.deliver(s)
	}
	return version, nil
}
