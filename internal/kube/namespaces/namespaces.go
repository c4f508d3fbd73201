// Package namespaces reads the labels of the cluster's namespaces. Authorization rules can select namespaces by these
// labels. The package stores the last labels from the API server in a file.
package namespaces

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trimtab/trimtab/internal/kube"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/sleep"
)

// Labels are the labels of each namespace, by its name.
type Labels map[string]map[string]string

// file is the content of the stored file.
type file struct {
	Namespaces Labels `json:"namespaces"`
}

// Store has the labels. The zero value has none.
type Store struct {
	mu      sync.Mutex // guards the fields below
	labels  Labels
	read    bool          // the labels come from the API server and not from the file
	changed chan struct{} // tells Service.Run that labels changed; of capacity 1, and nil until Run receives from it
}

// Load reads the labels that an earlier agent stored in the file. It ignores invalid content.
func (s *Store) Load(kept []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var f file
	if json.Unmarshal(kept, &f) == nil {
		s.labels = f.Namespaces
	}
}

// Labels returns a copy of the labels. A nil store has none.
func (s *Store) Labels() Labels {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.labels)
}

// Listed replaces all labels by the labels of the listed namespaces. It implements kube.Handler.
func (s *Store) Listed(all []*unstructured.Unstructured) {
	l := make(Labels, len(all))
	for _, o := range all {
		l[o.GetName()] = o.GetLabels()
	}
	s.change(func() { s.labels, s.read = l, true })
}

// Changed stores the labels of a new or changed namespace. It implements kube.Handler.
func (s *Store) Changed(o *unstructured.Unstructured) {
	s.change(func() {
		if s.labels == nil {
			s.labels = Labels{}
		}
		s.labels[o.GetName()] = o.GetLabels()
	})
}

// Deleted removes the labels of a deleted namespace. It implements kube.Handler.
func (s *Store) Deleted(o *unstructured.Unstructured) {
	s.change(func() { delete(s.labels, o.GetName()) })
}

// change runs f, which changes the labels, and tells Service.Run that they changed.
func (s *Store) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// Service reads the labels as soon as an authorization rule selects namespaces by label.
type Service struct {
	Store  *Store
	Client *kube.Client
	// NeedsLabels reports whether a rule selects namespaces by label.
	NeedsLabels func() bool
	// Apply applies the configuration again, because labels changed.
	Apply func() error
	// Save stores the labels for the next start. It may be nil.
	Save func([]byte) error

	mu      sync.Mutex // guards the fields below
	lastErr error      // the error of the last attempt to apply or save the labels; nil if it succeeded
}

const (
	// pollInterval is how often the service checks whether a rule selects namespaces by label.
	pollInterval = 2 * time.Second
	// debounce is how long the service collects changes before it applies them.
	debounce = 500 * time.Millisecond
)

// resource is the API resource that the service lists and watches.
var resource = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// Run waits until NeedsLabels returns true. Then it reads the labels until ctx ends.
func (s *Service) Run(ctx context.Context) {
	for !s.NeedsLabels() {
		if !sleep.For(ctx, pollInterval) {
			return
		}
	}
	s.Store.mu.Lock()
	changed := make(chan struct{}, 1)
	s.Store.changed = changed
	s.Store.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { s.Client.ListAndWatch(ctx, kube.Selection{Resource: resource}, s.Store) })
	defer running.Wait()
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		if !sleep.For(ctx, debounce) {
			return
		}
		s.applyAndSave()
	}
}

// applyAndSave applies the labels, and stores them in the file.
func (s *Service) applyAndSave() {
	err := s.Apply()
	if err == nil && s.Save != nil {
		var data []byte
		if data, err = json.Marshal(file{s.Store.Labels()}); err == nil {
			err = s.Save(data)
		}
	}
	if err != nil {
		s.Client.Log.Warn("the agent cannot apply or store the labels of namespaces", logkey.Err, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastErr = err
}

// Row returns the row about namespaces in the status of the agent.
func (s *Service) Row() api.ClusterPart {
	row := api.ClusterPart{Name: "Namespaces", State: "not read: no rule of authorization has a namespaceSelector"}
	if !s.NeedsLabels() {
		return row
	}
	s.Store.mu.Lock()
	known, read := len(s.Store.labels), s.Store.read
	s.Store.mu.Unlock()
	row.State = fmt.Sprintf("labels of %d namespaces", known)
	switch {
	case known == 0:
		row.Error = "not read yet: the API server has not sent the labels of namespaces"
	case !read:
		row.Error = "the labels are from the file of the previous agent: the API server has not answered since the start"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lastErr != nil {
		row.Error = s.lastErr.Error()
	}
	return row
}
