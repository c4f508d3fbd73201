package kernel

import (
	"fmt"
	"sync"
)

// Links simulates where the host's network interfaces are.
type Links struct {
	mu sync.Mutex
	at map[string]string // the network namespace of each interface; "" for the host's
}

// NewLinks returns the interfaces of a host.
func NewLinks(names []string) *Links {
	l := &Links{at: map[string]string{}}
	for _, name := range names {
		l.at[name] = ""
	}
	return l
}

// Has reports whether the host has an interface.
func (l *Links) Has(name string) (has, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, exists := l.at[name]
	return exists && at == "", true
}

// Move moves an interface of the host into a network namespace. The error is runc's.
func (l *Links) Move(name, namespace string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, exists := l.at[name]; !exists || at != "" {
		return fmt.Errorf("link not found for interface %s on runtime namespace", name)
	}
	l.at[name] = namespace
	return nil
}

// End ends a network namespace. Its interfaces return to the host.
func (l *Links) End(namespace string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, at := range l.at {
		if at == namespace {
			l.at[name] = ""
		}
	}
}
