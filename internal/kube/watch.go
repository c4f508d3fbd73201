package kube

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Selection selects the objects of a watch.
type Selection struct {
	Resource  schema.GroupVersionResource
	Namespace string // "" for all
	// Fields and Labels are selectors as kubectl takes them; "" means all objects.
	Fields, Labels string
	// Note is called with the error of each request of this watch, or nil after a success. It may be nil.
	Note func(error)
}

// Handler is called with the objects of a watch, one call at a time.
type Handler interface {
	// All is called with all objects: at the start, and after a gap.
	All([]*unstructured.Unstructured)
	// Changed is called with a new or changed object.
	Changed(*unstructured.Unstructured)
	// Deleted is called with a deleted object.
	Deleted(*unstructured.Unstructured)
}

// ListAndWatch lists and watches objects until ctx ends. If the server does not answer, or ends a
// watch as too old (410), it tries again, with client-go's pauses of up to 60 s.
func (c *Client) ListAndWatch(ctx context.Context, s Selection, h Handler) {
	c.Begin(ctx)
	objects := c.Dynamic.Resource(s.Resource).Namespace(s.Namespace)
	selected := func(o *metav1.ListOptions) { o.FieldSelector, o.LabelSelector = s.Fields, s.Labels }
	note := func(err error) {
		c.Note(err)
		if s.Note != nil {
			s.Note(err)
		}
	}
	r := cache.NewReflectorWithOptions(listFirst{&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			selected(&o)
			l, err := objects.List(ctx, o)
			note(err)
			return l, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			selected(&o)
			w, err := objects.Watch(ctx, o)
			note(err)
			return w, err
		},
	}}, &unstructured.Unstructured{}, storeAdapter{h}, cache.ReflectorOptions{Name: s.Resource.Resource})
	r.RunWithContext(ctx)
}

// listFirst makes a reflector list and then watch. Otherwise the reflector requests the list by the watch, and
// client-go 0.37 repeats such a watch without a pause while the server answers 410.
type listFirst struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is called by the reflector.
func (listFirst) IsWatchListSemanticsUnSupported() bool { return true }

// storeAdapter passes everything that a reflector stores to a Handler.
type storeAdapter struct{ h Handler }

func (t storeAdapter) Add(o any) error    { return t.changed(o) }
func (t storeAdapter) Update(o any) error { return t.changed(o) }

func (t storeAdapter) changed(o any) error {
	if u, ok := o.(*unstructured.Unstructured); ok {
		t.h.Changed(u)
	}
	return nil
}

func (t storeAdapter) Delete(o any) error {
	if u, ok := o.(*unstructured.Unstructured); ok {
		t.h.Deleted(u)
	}
	return nil
}

func (t storeAdapter) Replace(all []any, _ string) error {
	var objects []*unstructured.Unstructured
	for _, o := range all {
		if u, ok := o.(*unstructured.Unstructured); ok {
			objects = append(objects, u)
		}
	}
	t.h.All(objects)
	return nil
}

// Resync does nothing: the handler keeps the objects.
func (t storeAdapter) Resync() error { return nil }
