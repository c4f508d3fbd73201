package events

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/trimtab/trimtab/internal/kube"
)

// server keeps event objects by name, and counts requests by method.
type server struct {
	mu     sync.Mutex
	events map[string]any
	asked  map[string]int
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[r.Method]++
	body, _ := io.ReadAll(r.Body)
	var o struct{ Metadata struct{ Name string } }
	_ = json.Unmarshal(body, &o)
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodPost && s.events[o.Metadata.Name] != nil {
		w.WriteHeader(http.StatusConflict)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: http.StatusConflict, Reason: metav1.StatusReasonAlreadyExists})
		return
	}
	if r.Method == http.MethodPost {
		s.events[o.Metadata.Name] = true
	}
	_, _ = w.Write([]byte(`{"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}}`))
}

// TestShared: a hundred nodes that refuse one ConfigMap create one event, and none changes the event of
// another. About a pod each node has its own event.
func TestShared(t *testing.T) {
	s := &server{events: map[string]any{}, asked: map[string]int{}}
	web := httptest.NewServer(s)
	defer web.Close()
	d, err := dynamic.NewForConfig(&rest.Config{Host: web.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	const nodes = 100
	all := func(about About) {
		for i := range nodes {
			r := NewRecorder(&kube.Client{Dynamic: d, Node: string(rune('a' + i)), Log: slog.New(slog.DiscardHandler)})
			for range 2 { // the second warning is recorded again
				r.Warn(about, ConfigurationRefused, "unknown key")
				if err := r.write(t.Context(), r.oldest()); err != nil || r.Counts()[ResultWritten] == 0 {
					t.Fatalf("%v, %v", err, r.Counts())
				}
			}
		}
	}
	all(About{Kind: "ConfigMap", Namespace: "kube-system", Name: "trimtab-cluster", UID: "u", Version: "7"})
	if len(s.events) != 1 || s.asked[http.MethodPatch] != 0 || s.asked[http.MethodPost] != 2*nodes {
		t.Errorf("of all nodes: %d events, requests %v", len(s.events), s.asked)
	}
	all(pod(1))
	if len(s.events) != 1+nodes || s.asked[http.MethodPatch] != nodes {
		t.Errorf("of each node: %d events, requests %v", len(s.events)-1, s.asked)
	}
}
