package nri

import (
	"fmt"

	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/runtimes"
)

// peer is the runtime at the other end of a connection, as far as it decides
// what an answer can hold. Runtimes drop fields they do not know without an
// error, so of what is unknown the worst is assumed: the zero peer knows nothing
// that came after the first release of this protocol.
type peer struct {
	name  string  // as the runtime calls itself
	nri   version // the NRI release in it; zero where it is unknown
	kind  runtimes.Runtime
	about string // for people
}

// newPeer is the runtime that says this of itself in Configure. stated is the
// NRI release it states, or that the stub inferred.
func newPeer(name, release, stated string) peer {
	nri := runtimeVersion(stated, name, release)
	p := peer{name: name, nri: runtimes.ParseVersion(nri)}
	p.kind = runtimes.Of(name, release, p.nri)
	if p.nri == (version{}) {
		p.about = fmt.Sprintf("%s %s (NRI release unknown)", name, release)
	} else {
		p.about = fmt.Sprintf("%s %s (NRI %s)", name, release, nri)
	}
	return p
}

// Runtime is what is known of a runtime by how it introduces itself.
func Runtime(name, release string) runtimes.Runtime { return newPeer(name, release, "").kind }

// has reports whether the runtime's NRI library is of this release or a later one.
func (p peer) has(nri version) bool { return !p.nri.Before(nri) }

// capabilities are what the attachment can do with this runtime.
func (p peer) capabilities() conductor.Capabilities {
	updates := lifecycle.FieldsWhere(func(f lifecycle.Field) bool { return p.carries(lifecycle.UpdateContainer, f) })
	return conductor.Capabilities{
		Name: "nri", About: p.about,
		Create: lifecycle.FieldsWhere(func(f lifecycle.Field) bool { return p.carries(lifecycle.CreateContainer, f) }),
		Update: updates, Copy: updates,
		Takes:      func(c runtimes.Call, v lifecycle.Value) string { return p.kind.Takes(runtimes.NRI, c, v) },
		Piggybacks: p.piggybacks(),
	}
}

// piggybacks is true of containerd (1.7 to 2.4, internal/nri: they are applied
// before the lock is let go, and a failure is logged) and of the embedded runtime,
// which does the same. CRI-O fails the creation whose answer has an update that
// fails.
func (p peer) piggybacks() bool { return p.name == "containerd" || p.name == Embedded }

// carries says what an answer to an event of this kind can hold: at creation
// everything in the table that the runtime applies, in updates resources alone,
// nothing elsewhere.
func (p peer) carries(kind lifecycle.Kind, f lifecycle.Field) bool {
	s := settingOf[f]
	if s == nil {
		return false
	}
	switch kind {
	case lifecycle.CreateContainer:
		return p.kind.Has(runtimes.NRI, runtimes.Create, f)
	case lifecycle.UpdateContainer:
		return s.resource != nil && p.kind.Has(runtimes.NRI, runtimes.Request, f)
	}
	return false
}

// Carries says what the newest runtime can be answered, as Attachment.Capabilities
// does of the one that is connected.
func Carries(kind lifecycle.Kind, f lifecycle.Field) bool {
	s := settingOf[f]
	return s != nil && (kind == lifecycle.CreateContainer || kind == lifecycle.UpdateContainer && s.resource != nil)
}

// lacks lists the fields that other runtimes carry at creation, and this one
// does not.
func (p peer) lacks() []lifecycle.Field {
	var out []lifecycle.Field
	for _, s := range settings {
		if !p.carries(lifecycle.CreateContainer, s.field) {
			out = append(out, s.field)
		}
	}
	return out
}
