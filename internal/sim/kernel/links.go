package kernel

import (
	"fmt"
	"sync"
)

// Links simulates in which network namespace each of the host's network interfaces is.
type Links struct {
	mu          sync.Mutex
	namespaceOf map[string]string // the network namespace of each interface; "" for the host's namespace
}

// NewLinks returns a host with the network interfaces in names.
func NewLinks(names []string) *Links {
	l := &Links{namespaceOf: map[string]string{}}
	for _, name := range names {
		l.namespaceOf[name] = ""
	}
	return l
}

// Has reports whether an interface is in the host's network namespace. known is always true, because the simulation
// knows all interfaces.
func (l *Links) Has(name string) (has, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, exists := l.namespaceOf[name]
	return exists && at == "", true
}

// Move moves an interface of the host into a network namespace. If the host does not have the interface, Move returns
// an error with the same text as runc's error.
func (l *Links) Move(name, namespace string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, exists := l.namespaceOf[name]; !exists || at != "" {
		return fmt.Errorf("link not found for interface %s on runtime namespace", name)
	}
	l.namespaceOf[name] = namespace
	return nil
}

// End ends a network namespace. Its interfaces return to the host.
func (l *Links) End(namespace string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, at := range l.namespaceOf {
		if at == namespace {
			l.namespaceOf[name] = ""
		}
	}
}
