package podspec

import (
	"errors"
	"fmt"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Bounds of what a kubelet tells. A kubelet runs 110 pods by default, and a
// pod's object is at most about 1.5 MiB in the API server's store.
const (
	maxPods       = 16384
	maxContainers = 4096
	maxAmounts    = 256
	maxName       = 1024
)

// builder makes a spec of what a decoder reads, and checks it.
type builder struct {
	spec                  lifecycle.PodSpec
	init, apps, ephemeral []lifecycle.ContainerSpec
	meta                  lifecycle.PodMeta
	err                   error
}

func (b *builder) fail(format string, args ...any) {
	if b.err == nil {
		b.err = fmt.Errorf(format, args...)
	}
}

// amount adds one resource; CPU is counted in milli-CPUs.
func (b *builder) amount(into *lifecycle.Amounts, name, quantity string) {
	per := int64(1)
	if name == lifecycle.ResourceCPU {
		per = 1000
	}
	v, err := lifecycle.Quantity(quantity, per)
	switch {
	case err != nil:
		b.fail("%.60q: %.40q %w", name, quantity, err)
	case len(*into) == maxAmounts || len(name) > maxName:
		b.fail("too many resources, or a name too long")
	case *into == nil:
		*into = lifecycle.Amounts{name: v}
	default:
		(*into)[name] = v
	}
}

// label keeps a label whose edits count.
func (b *builder) label(key, text string) { keep(&b.meta.Labels, key, text) }

// annotation keeps an annotation whose edits count.
func (b *builder) annotation(key, text string) { keep(&b.meta.Annotations, key, text) }

// mostText bounds the text of one annotation: above what any dialect reads, so
// that what is too long is still told to be.
const mostText = lifecycle.MaxText + 1

func keep(into *map[string]string, key, text string) {
	if !lifecycle.Editable(key) {
		return
	}
	text = text[:min(len(text), mostText)]
	if *into == nil {
		*into = map[string]string{}
	}
	(*into)[key] = text
}

// initContainer adds an init container or a sidecar.
func (b *builder) initContainer(c lifecycle.ContainerSpec, restartPolicy string) {
	c.Kind = lifecycle.Init
	if restartPolicy == "Always" { // Kubernetes 1.29 and later
		c.Kind = lifecycle.Sidecar
	}
	b.init = append(b.init, c)
}

// finish returns the spec, or what is wrong with it.
func (b *builder) finish(from lifecycle.Source) (*lifecycle.PodSpec, error) {
	s := b.spec
	s.Containers = append(append(b.init, b.apps...), b.ephemeral...)
	b.meta.Whole = true // the kubelet has all labels and annotations
	s.From, s.Meta = from, &b.meta
	switch {
	case b.err != nil:
	case s.UID == "" || s.Name == "" || s.Namespace == "":
		b.err = errors.New("without name, namespace or UID")
	case len(s.UID) > maxName || len(s.Name) > maxName || len(s.Namespace) > maxName:
		b.err = errors.New("with a name too long")
	case len(s.Containers) > maxContainers:
		b.err = errors.New("with too many containers")
	}
	seen := map[string]bool{}
	for _, c := range s.Containers {
		if c.Name == "" || len(c.Name) > maxName || seen[c.Name] {
			b.fail("a container has no name, or that of another")
		}
		seen[c.Name] = true
	}
	if b.err != nil {
		return nil, fmt.Errorf("pod %.80q: %w", s.Namespace+"/"+s.Name, b.err)
	}
	return &s, nil
}

// listed checks an answer that lists all pods of a node, and returns it by UID.
// node is the name the pods' node must have; "" takes whatever they agree on. Of two
// pods with one UID neither is believed.
func listed(all []*lifecycle.PodSpec, node string) (out map[string]*lifecycle.PodSpec, unread []Unread, err error) {
	out = make(map[string]*lifecycle.PodSpec, len(all))
	twice := map[string]bool{}
	for _, s := range all {
		if out[s.UID] != nil {
			twice[s.UID] = true
		}
		switch {
		case s.Node == "":
		case node == "":
			node = s.Node
		case s.Node != node:
			return nil, nil, fmt.Errorf("pods of node %.80q; this one is %.80q: is podspec.kubelet.url another node's?", s.Node, node)
		}
		out[s.UID] = s
	}
	for uid := range twice {
		delete(out, uid)
		unread = append(unread, Unread{uid, fmt.Errorf("two pods have the UID %.60q", uid)})
	}
	return out, unread, nil
}

// Unread is a pod that was told and cannot be read; its UID is "" where that cannot be
// read either.
type Unread struct {
	UID string
	Err error
}

// unreadError says how many pods could not be read and why the first; nil for none.
func unreadError(unread []Unread) error {
	switch len(unread) {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("1 pod cannot be read: %w", unread[0].Err)
	}
	return fmt.Errorf("%d pods cannot be read, the first: %w", len(unread), unread[0].Err)
}
