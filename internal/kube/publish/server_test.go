package publish

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/trimtab/trimtab/internal/kube"
)

// server keeps the Node n1 and one object, and refuses a write of an older version of the object as an API server does.
type server struct {
	mu      sync.Mutex
	labels  map[string]any // of the Node
	object  map[string]any // nil for none
	version int
	asked   []string // methods of requests for the object, in order
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := func(code int, body any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(body)
	}
	refuse := func(code int, reason metav1.StatusReason) {
		answer(code, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: int32(code), Reason: reason, Details: &metav1.StatusDetails{Name: "n1"}})
	}
	if strings.Contains(r.URL.Path, "/nodes/") {
		answer(http.StatusOK, map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "n1", "uid": "node-uid", "labels": s.labels}})
		return
	}
	s.asked = append(s.asked, r.Method)
	if r.Method == http.MethodGet {
		if s.object == nil {
			refuse(http.StatusNotFound, metav1.StatusReasonNotFound)
			return
		}
		answer(http.StatusOK, s.object)
		return
	}
	var applied map[string]any
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(body, &applied)
	}
	metadata, _ := applied["metadata"].(map[string]any)
	if err != nil || metadata == nil {
		refuse(http.StatusBadRequest, metav1.StatusReasonBadRequest)
		return
	}
	if v, has := metadata["resourceVersion"]; has && (s.object == nil || v != strconv.Itoa(s.version)) {
		refuse(http.StatusConflict, metav1.StatusReasonConflict)
		return
	}
	s.store(applied)
	answer(http.StatusOK, s.object)
}

// store stores an object as a new version. The caller holds the lock.
func (s *server) store(o map[string]any) {
	s.version++
	metadata := o["metadata"].(map[string]any)
	metadata["resourceVersion"], metadata["uid"] = strconv.Itoa(s.version), "uid"
	s.object = o
}

// requests returns the requests for the object since the last call.
func (s *server) requests() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := strings.Join(s.asked, " ")
	s.asked = nil
	return out
}

// publisher returns a publisher whose report has a value, and its server.
func publisher(t *testing.T, r Report) (*Publisher, *server, *string) {
	t.Helper()
	s, value := &server{}, new(string)
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	d, err := dynamic.NewForConfig(&rest.Config{Host: web.URL})
	if err != nil {
		t.Fatal(err)
	}
	r.Kind, r.Resource, r.Key = "Zones", schema.GroupVersionResource{Group: "g", Version: "v1", Resource: "zones"}, "value"
	r.Ready = func() error { return nil }
	if r.Make == nil {
		r.Make = func() (map[string]string, map[string]any) { return nil, map[string]any{"value": *value} }
	}
	c := &kube.Client{Dynamic: d, Node: "n1", Server: web.URL, HTTP: web.Client(), Log: slog.New(slog.DiscardHandler)}
	return New(c, r, Pace{CheckInterval: time.Hour}), s, value
}

// TestOneRequest: an object that no other program changes is read once, and each write is one request.
func TestOneRequest(t *testing.T) {
	p, s, value := publisher(t, Report{})
	for i, want := range []string{"GET PATCH", "PATCH", "PATCH"} {
		*value = fmt.Sprint(i)
		p.reconcile(t.Context())
		if got := s.requests(); got != want {
			t.Errorf("write %d: %s, want %s", i, got, want)
		}
	}
	p.reconcile(t.Context())
	if got := s.requests(); got != "" {
		t.Errorf("without a change: %s", got)
	}
	if row := p.Row(); row.Written != 3 || row.Skipped != 1 || row.Failed != 0 {
		t.Errorf("%+v", row)
	}
}

// TestChangedMeanwhile: an object that another program wrote or deleted is read before it is written again.
// That is not a failure.
func TestChangedMeanwhile(t *testing.T) {
	p, s, value := publisher(t, Report{})
	p.reconcile(t.Context())
	s.requests()
	s.mu.Lock()
	s.object["metadata"].(map[string]any)["labels"] = map[string]any{"theirs": "x"}
	s.store(s.object)
	s.mu.Unlock()
	*value = "1"
	p.reconcile(t.Context())
	if got := s.requests(); got != "PATCH GET PATCH" {
		t.Errorf("after a write of another program: %s", got)
	}
	s.mu.Lock()
	s.object = nil
	s.mu.Unlock()
	*value = "2"
	p.reconcile(t.Context()) // the object was deleted with its Node, or by a user: the Node is read again
	p.reconcile(t.Context())
	if got := s.requests(); got != "PATCH GET GET PATCH" {
		t.Errorf("after it was deleted: %s", got)
	}
	if s.object["value"] != "2" {
		t.Errorf("it is %v", s.object)
	}
	if row := p.Row(); row.Written != 3 || row.Failed != 0 {
		t.Errorf("%+v", row)
	}
}

// TestDueAfterWrites: a check finds that another program changed our field, and writes it in the same
// round. The publisher's stored version is older than what it has just read: a write with it would always
// be refused.
func TestDueAfterWrites(t *testing.T) {
	p, s, value := publisher(t, Report{})
	*value = "ours"
	p.reconcile(t.Context())
	s.requests()
	s.mu.Lock()
	s.object["value"] = "theirs"
	s.store(s.object)
	s.mu.Unlock()
	p.lastWrite.writtenAt = time.Now().Add(-2 * p.pace.CheckInterval)
	next, _ := p.reconcile(t.Context())
	if got := s.requests(); got != "GET PATCH" || s.object["value"] != "ours" {
		t.Errorf("%s, and the object is %v", got, s.object)
	}
	if next < p.pace.MinInterval {
		t.Errorf("the next round is in %v: the server would be asked without a pause", next)
	}
	if row := p.Row(); row.Written != 2 || row.Failed != 0 {
		t.Errorf("%+v", row)
	}
}

// TestNodeLabels: a report gets the Node's labels before its first object, its own labels are added, and
// the status says what it lacks.
func TestNodeLabels(t *testing.T) {
	var labels map[string]string
	r := Report{
		OnNodeLabels: func(l map[string]string) { labels = l },
		Make: func() (map[string]string, map[string]any) {
			return nil, map[string]any{"value": labels["size"], "metadata": map[string]any{"labels": map[string]any{"model": "m"}}}
		},
		Note: func() string { return "it lacks much" },
	}
	p, s, _ := publisher(t, r)
	s.labels = map[string]any{"size": "4"}
	p.reconcile(t.Context())
	metadata := s.object["metadata"].(map[string]any)
	if got := metadata["labels"].(map[string]any); s.object["value"] != "4" || got["model"] != "m" || got["app.kubernetes.io/managed-by"] != FieldManager {
		t.Errorf("%v", s.object)
	}
	if metadata["name"] != "n1" {
		t.Errorf("%v", metadata)
	}
	if row := p.Row(); row.Note != "it lacks much" || row.Error != "" {
		t.Errorf("%+v", row)
	}
}
