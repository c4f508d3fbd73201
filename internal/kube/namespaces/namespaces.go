// Package namespaces knows the labels of the cluster's namespaces, by which rules of
// authorisation may select them. The last answer of the API server is kept in a file.
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

// file is what is kept of them.
type file struct {
	Namespaces Labels `json:"namespaces"`
}

// Store knows the labels. The zero value knows none.
type Store struct {
	mu      sync.Mutex // guards all below
	labels  Labels
	read    bool          // by this agent, not from the file
	changed chan struct{} // of capacity 1; nil while nobody waits
}

// Load takes what an agent before this one kept. Text that is none of ours is as none.
func (s *Store) Load(kept []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var f file
	if json.Unmarshal(kept, &f) == nil {
		s.labels = f.Namespaces
	}
}

// Labels returns a copy of what is known; of no store nothing.
func (s *Store) Labels() Labels {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.labels)
}

// All is told every namespace that there is.
func (s *Store) All(all []*unstructured.Unstructured) {
	l := make(Labels, len(all))
	for _, o := range all {
		l[o.GetName()] = o.GetLabels()
	}
	s.change(func() { s.labels, s.read = l, true })
}

// Changed is notified of a namespace.
func (s *Store) Changed(o *unstructured.Unstructured) {
	s.change(func() {
		if s.labels == nil {
			s.labels = Labels{}
		}
		s.labels[o.GetName()] = o.GetLabels()
	})
}

// Gone is notified of a namespace that is no more.
func (s *Store) Gone(o *unstructured.Unstructured) {
	s.change(func() { delete(s.labels, o.GetName()) })
}

func (s *Store) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// Service reads the labels while a rule selects by them.
type Service struct {
	Store  *Store
	Client *kube.Client
	// Wanted reports whether a rule selects namespaces by label.
	Wanted func() bool
	// Apply puts changed labels in force.
	Apply func() error
	// Save keeps them for the next start; nil keeps nothing.
	Save func([]byte) error

	mu     sync.Mutex // guards all below
	failed error
}

const (
	// poll is how often a configuration is looked at that has had no such rule.
	poll = 2 * time.Second
	// debounce is how long changes are collected.
	debounce = 500 * time.Millisecond
)

var resource = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// Run reads the labels until ctx ends.
func (s *Service) Run(ctx context.Context) {
	for !s.Wanted() {
		if !sleep.For(ctx, poll) {
			return
		}
	}
	s.Store.mu.Lock()
	changed := make(chan struct{}, 1)
	s.Store.changed = changed
	s.Store.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { s.Client.Follow(ctx, kube.Selection{Resource: resource}, s.Store) })
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
		s.put()
	}
}

// put puts what is known in force, and keeps it.
func (s *Service) put() {
	err := s.Apply()
	if err == nil && s.Save != nil {
		var data []byte
		if data, err = json.Marshal(file{s.Store.Labels()}); err == nil {
			err = s.Save(data)
		}
	}
	if err != nil {
		s.Client.Log.Warn("labels of namespaces are not in force, or not kept", logkey.Err, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = err
}

// Row says how it stands.
func (s *Service) Row() api.ClusterPart {
	row := api.ClusterPart{Name: "Namespaces", State: "not read: no rule of authorisation has a namespaceSelector"}
	if !s.Wanted() {
		return row
	}
	s.Store.mu.Lock()
	known, read := len(s.Store.labels), s.Store.read
	s.Store.mu.Unlock()
	row.State = fmt.Sprintf("labels of %d namespaces", known)
	switch {
	case known == 0:
		row.Error = "not read: no authorisation rule has a namespaceSelector"
	case !read:
		row.Error = "kept from before: the API server has not answered since the start"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		row.Error = s.failed.Error()
	}
	return row
}
