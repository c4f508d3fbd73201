package nri

import (
	"fmt"

	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/runtimes"
)

// peer is the runtime at the other end of a connection. The runtime's name and release decide which fields an answer
// can have: runtimes drop the fields that they do not know, without an error. The zero peer is an unknown runtime. It
// supports only what the first release of NRI supported.
type peer struct {
	name  string           // as the runtime reports it
	nri   version          // the runtime's NRI release; zero if it is unknown
	kind  runtimes.Runtime // the runtime in the tables of package runtimes
	about string           // name and versions, for Status
}

// newPeer returns the runtime that sent this name and release in its Configure request. The parameter stated is the
// runtime's NRI release, as the runtime sent it or the NRI library inferred it; "" if it is unknown.
func newPeer(name, release, stated string) peer {
	nri := nriRelease(stated, name, release)
	p := peer{name: name, nri: runtimes.ParseVersion(nri)}
	p.kind = runtimes.Identify(name, release, p.nri)
	if p.nri == (version{}) {
		p.about = fmt.Sprintf("%s %s (NRI release unknown)", name, release)
	} else {
		p.about = fmt.Sprintf("%s %s (NRI %s)", name, release, nri)
	}
	return p
}

// Runtime returns the runtime that sends this name and release in Configure.
func Runtime(name, release string) runtimes.Runtime { return newPeer(name, release, "").kind }

// isAtLeast reports whether the runtime's NRI release is the release nri or a later one. It returns false if the
// runtime's release is unknown.
func (p peer) isAtLeast(nri version) bool { return !p.nri.Before(nri) }

// capabilities returns what the attachment can change in this runtime.
func (p peer) capabilities() conductor.Capabilities {
	updates := lifecycle.FieldsWhere(func(f lifecycle.Field) bool { return p.carries(lifecycle.UpdateContainer, f) })
	return conductor.Capabilities{
		Name: "nri", RuntimeName: p.about,
		Create: lifecycle.FieldsWhere(func(f lifecycle.Field) bool { return p.carries(lifecycle.CreateContainer, f) }),
		Update: updates, Copy: updates,
		WhyNotAccepted: func(c runtimes.Call, v lifecycle.Value) string { return p.kind.WhyNotAccepted(runtimes.NRI, c, v) },
		Piggybacks:     p.piggybacks(),
		OthersAnswer:   true,
	}
}

// piggybacks reports whether the answer to CreateContainer can also update other containers, so that a failed update
// does not make the creation fail. containerd and the embedded runtime apply such updates before they release their
// lock, and only log a failure (containerd 1.7 to 2.4, internal/nri). CRI-O fails the creation if such an update fails.
func (p peer) piggybacks() bool { return p.name == "containerd" || p.name == EmbeddedRuntime }

// carries reports whether an answer to an event of this kind can set the field. The answer to CreateContainer can set
// every field that NRI's answers have (the table in settings.go) and that the runtime applies. The answer to
// UpdateContainer can set only resources. Answers to other events can set no field.
func (p peer) carries(kind lifecycle.Kind, f lifecycle.Field) bool {
	s := settableByField[f]
	if s == nil {
		return false
	}
	switch kind {
	case lifecycle.CreateContainer:
		return p.kind.AppliesField(runtimes.NRI, runtimes.CreateCall, f)
	case lifecycle.UpdateContainer:
		return s.resource != nil && p.kind.AppliesField(runtimes.NRI, runtimes.KubeletUpdate, f)
	}
	return false
}

// Carries reports whether an answer to an event of this kind can set the field, if the runtime is the newest one.
// Attachment.Capabilities lists the fields that the connected runtime applies.
func Carries(kind lifecycle.Kind, f lifecycle.Field) bool {
	s := settableByField[f]
	return s != nil && (kind == lifecycle.CreateContainer || kind == lifecycle.UpdateContainer && s.resource != nil)
}

// missingFields lists the fields that other runtimes apply from an answer to CreateContainer, but this runtime does
// not.
func (p peer) missingFields() []lifecycle.Field {
	var out []lifecycle.Field
	for _, s := range settableFields {
		if !p.carries(lifecycle.CreateContainer, s.field) {
			out = append(out, s.field)
		}
	}
	return out
}
