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

// Selection selects the objects that ListAndWatch watches.
type Selection struct {
	Resource  schema.GroupVersionResource
	Namespace string // "" for all namespaces
	// Fields and Labels are a field selector and a label selector, in the syntax of kubectl; "" means all objects.
	Fields, Labels string
	// OnResult is called after each list or watch request, with its error or nil. OnResult may be nil.
	OnResult func(error)
}

// Handler gets the objects of a watch. Its methods are called one at a time.
type Handler interface {
	// Listed is called with all objects: at the start, and after an interruption in which the client possibly missed
	// changes.
	Listed([]*unstructured.Unstructured)
	// Changed is called with a new or changed object.
	Changed(*unstructured.Unstructured)
	// Deleted is called with a deleted object.
	Deleted(*unstructured.Unstructured)
}

// ListAndWatch lists and watches objects until ctx ends. If the server does not answer, or ends a watch because its
// resource version is too old (410), ListAndWatch tries again. It waits before it tries again, at most 60 s, as
// client-go does.
func (c *Client) ListAndWatch(ctx context.Context, s Selection, h Handler) {
	c.AwaitFirstList(ctx)
	objects := c.Dynamic.Resource(s.Resource).Namespace(s.Namespace)
	selected := func(o *metav1.ListOptions) { o.FieldSelector, o.LabelSelector = s.Fields, s.Labels }
	note := func(err error) {
		c.RecordResult(err)
		if s.OnResult != nil {
			s.OnResult(err)
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

// listFirst makes a reflector send a list request before the watch request. Without listFirst, the reflector gets the
// list through the watch request. client-go 0.37 repeats such a watch request without a pause while the server answers
// 410.
type listFirst struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported tells the reflector to send a list request first.
func (listFirst) IsWatchListSemanticsUnSupported() bool { return true }

// storeAdapter is the store of a reflector. It passes the objects to a Handler, and stores nothing.
type storeAdapter struct{ h Handler }

// Add passes a new object to the Handler.
func (t storeAdapter) Add(o any) error { return t.changed(o) }

// Update passes a changed object to the Handler.
func (t storeAdapter) Update(o any) error { return t.changed(o) }

// changed calls Handler.Changed with an object.
func (t storeAdapter) changed(o any) error {
	if u, ok := o.(*unstructured.Unstructured); ok {
		t.h.Changed(u)
	}
	return nil
}

// Delete calls Handler.Deleted with an object.
func (t storeAdapter) Delete(o any) error {
	if u, ok := o.(*unstructured.Unstructured); ok {
		t.h.Deleted(u)
	}
	return nil
}

// Replace calls Handler.Listed with the listed objects.
func (t storeAdapter) Replace(all []any, _ string) error {
	var objects []*unstructured.Unstructured
	for _, o := range all {
		if u, ok := o.(*unstructured.Unstructured); ok {
			objects = append(objects, u)
		}
	}
	t.h.Listed(objects)
	return nil
}

// Resync does nothing, because this store has no objects to send again.
func (t storeAdapter) Resync() error { return nil }
