package scenario

import (
	"fmt"
	"strings"
)

// Ref identifies a pod as namespace/pod, or a container as namespace/pod/container.
type Ref string

// PodRef returns the Ref of a pod.
func PodRef(namespace, pod string) Ref { return Ref(namespace + "/" + pod) }

// In returns the Ref of a container of the pod r.
func (r Ref) In(container string) Ref { return r + "/" + Ref(container) }

// Pod returns the Ref of the pod, also if r identifies a container of the pod.
func (r Ref) Pod() Ref {
	parts := strings.SplitN(string(r), "/", 3)
	return Ref(strings.Join(parts[:min(len(parts), 2)], "/"))
}

// Container returns the name of the container; "" for a pod's Ref.
func (r Ref) Container() string {
	parts := strings.SplitN(string(r), "/", 3)
	if len(parts) < 3 {
		return ""
	}
	return parts[2]
}

// Names returns the names of namespace, pod and container. container is "" for a pod's Ref.
func (r Ref) Names() (namespace, pod, container string) {
	parts := append(strings.SplitN(string(r), "/", 3), "", "")
	return parts[0], parts[1], parts[2]
}

// check returns an error for an invalid Ref. kind is +1 if the Ref must identify a container, -1 if it must identify a
// pod, and 0 if it may identify a pod or a container.
func (r Ref) check(kind int) error {
	parts := strings.Split(string(r), "/")
	for _, p := range parts {
		if p == "" {
			return fmt.Errorf("%q: write namespace/pod or namespace/pod/container", r)
		}
	}
	switch {
	case len(parts) < 2 || len(parts) > 3:
		return fmt.Errorf("%q: write namespace/pod or namespace/pod/container", r)
	case kind > 0 && len(parts) != 3:
		return fmt.Errorf("%q names no container: write namespace/pod/container", r)
	case kind < 0 && len(parts) != 2:
		return fmt.Errorf("%q names a container: write namespace/pod", r)
	}
	return nil
}
