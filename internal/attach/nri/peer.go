package nri

import (
	"fmt"

	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/runtimes"
)

// peer is the runtime at the other end of a connection. Its name and release decide which fields an answer can
// hold. Runtimes drop unknown fields without an error. The zero peer, an unknown runtime, therefore supports only
// what the first release of this protocol had.
type peer struct {
	name  string  // as the runtime reports it
	nri   version // the NRI release in it; zero if it is unknown
	kind  runtimes.Runtime
	about string // name and versions, for Status
}

// newPeer is the runtime that sent these values in Configure. stated is the NRI release that the runtime sent, or
// that the stub inferred.
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

// Runtime identifies a runtime by the name and the release that it sends in Configure.
func Runtime(name, release string) runtimes.Runtime { return newPeer(name, release, "").kind }

// has reports whether the runtime's NRI library has this release or a later one.
func (p peer) has(nri version) bool { return !p.nri.Before(nri) }

// capabilities are what the attachment can change in this runtime.
func (p peer) capabilities() conductor.Capabilities {
	updates := lifecycle.FieldsWhere(func(f lifecycle.Field) bool { return p.carries(lifecycle.UpdateContainer, f) })
	return conductor.Capabilities{
		Name: "nri", About: p.about,
		Create: lifecycle.FieldsWhere(func(f lifecycle.Field) bool { return p.carries(lifecycle.CreateContainer, f) }),
		Update: updates, Copy: updates,
		WhyNotAccepted: func(c runtimes.Call, v lifecycle.Value) string { return p.kind.Takes(runtimes.NRI, c, v) },
		Piggybacks:     p.piggybacks(),
		OthersAnswer:   true,
	}
}

// piggybacks is true for containerd and for the embedded runtime: they apply updates of
// other containers before they release their lock, and log a failure (containerd 1.7 to
// 2.4, internal/nri). CRI-O fails the creation if such an update fails.
func (p peer) piggybacks() bool { return p.name == "containerd" || p.name == Embedded }

// carries reports whether an answer to an event of this kind can set the field. At creation an answer can set all
// fields of the table that the runtime applies, in updates only resources, and at other events nothing.
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

// Carries reports what an answer to the newest runtime can set. Attachment.Capabilities
// reports it for the connected runtime.
func Carries(kind lifecycle.Kind, f lifecycle.Field) bool {
	s := settingOf[f]
	return s != nil && (kind == lifecycle.CreateContainer || kind == lifecycle.UpdateContainer && s.resource != nil)
}

// lacks lists the fields that other runtimes carry at creation and this one does not.
func (p peer) lacks() []lifecycle.Field {
	var out []lifecycle.Field
	for _, s := range settings {
		if !p.carries(lifecycle.CreateContainer, s.field) {
			out = append(out, s.field)
		}
	}
	return out
}
