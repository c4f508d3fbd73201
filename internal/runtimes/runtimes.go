package runtimes

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Protocol is a protocol that carries values to a runtime.
type Protocol uint8

// The protocols.
const (
	NRI Protocol = iota
	CRI
)

// String names the protocol.
func (w Protocol) String() string { return [...]string{"NRI", "CRI"}[w] }

// Call is a kind of call that carries values to a runtime.
type Call uint8

// The calls.
const (
	// CreateCall is the creation of a container: the answer to NRI's CreateContainer, or the CRI's CreateContainer.
	CreateCall Call = iota
	// KubeletUpdate is an update of a container by the kubelet, in which Trimtab changes resources.
	KubeletUpdate
	// AgentUpdate is an update of a container that the agent itself sends.
	AgentUpdate
)

// String returns the words for the call in messages.
func (c Call) String() string {
	return [...]string{"the creation of a container", "a kubelet's update", "an update of our own"}[c]
}

// Effect is what a runtime does with a value that it does not accept.
type Effect uint8

// The effects.
const (
	// Refuses means that the call fails.
	Refuses Effect = iota
	// Drops means that the call succeeds without the value.
	Drops
)

// String returns the verb for the effect in messages.
func (e Effect) String() string { return [...]string{"refuses", "drops"}[e] }

// NoLimit says how a rule with a smallest number treats the value -1, which means "no limit".
type NoLimit bool

// AcceptsNoLimit means that the runtime accepts -1, because -1 means "no limit" and is not a small number.
const AcceptsNoLimit NoLimit = true

// Rule describes a value, or a range of values, that a runtime does not accept.
type Rule struct {
	Runtime string // one of the names of this package
	Unless  string // a runtime to which the rule does not apply, if the release of that runtime is known
	// Since is the first release of the runtime to which the rule applies, and Until the first release to which it no
	// longer applies. BeforeNRI is the same as Until for the NRI library in the runtime. A zero Version means no limit.
	Since, Until, BeforeNRI Version
	Protocols               []Protocol
	Calls                   []Call
	Field                   lifecycle.Field
	// Min and Max are the smallest and the greatest number that the runtime accepts. If both are 0, the runtime
	// accepts no value.
	Min, Max int64
	NoLimit  NoLimit
	Effect   Effect
	Source   string // where a reader can check the rule
}

// Rules returns the table, for the docs.
func Rules() []Rule { return slices.Clone(allRules) }

// Releases returns a text that says to which releases the rule applies, for the docs.
func (rule Rule) Releases() string {
	var out []string
	if rule.Since.Known() {
		out = append(out, "since "+rule.Since.String())
	}
	if rule.Until.Known() {
		out = append(out, "before "+rule.Until.String())
	}
	if rule.BeforeNRI.Known() {
		out = append(out, "with NRI before "+rule.BeforeNRI.String())
	}
	if rule.Unless != "" {
		out = append(out, "except "+rule.Unless)
	}
	return cmp.Or(strings.Join(out, ", "), "all")
}

// Description returns what the rule says, as a sentence without a subject.
func (rule Rule) Description() string {
	switch {
	case rule.Min == 0 && rule.Max == 0:
		return rule.Effect.String() + " it"
	case rule.Max != 0:
		return fmt.Sprintf("%s values below %d or above %d", rule.Effect, rule.Min, rule.Max)
	case rule.NoLimit == AcceptsNoLimit:
		return fmt.Sprintf("%s values below %d, except -1 (no limit)", rule.Effect, rule.Min)
	}
	return fmt.Sprintf("%s values below %d, and -1 (no limit)", rule.Effect, rule.Min)
}

// Runtime is a runtime and its release.
type Runtime struct {
	Name    string // one of the names of this package
	Release Version
	NRI     Version // the release of the NRI library in the runtime; zero if unknown
	about   string  // the name and release as the runtime reports them, for messages
}

// Identify returns the runtime that reports this name and release. nri is the release of its NRI library, or zero if
// that release is unknown or NRI is not in use.
func Identify(name, release string, nri Version) Runtime {
	return Runtime{
		Name: cmp.Or(reportedNames[strings.ToLower(name)], UnknownRuntime), Release: ParseVersion(release), NRI: nri,
		about: cmp.Or(strings.TrimSpace(name+" "+release), "the runtime"),
	}
}

// WhyNotAccepted returns why the runtime does not accept a value in a call, or "" if it accepts the value.
func (r Runtime) WhyNotAccepted(by Protocol, c Call, v lifecycle.Value) (why string) {
	for i := range allRules {
		rule := &allRules[i]
		if rule.Field == v.Field && rule.applies(r, by, c) && rule.forbids(v) {
			return r.refusalReason(rule, c, v)
		}
	}
	return ""
}

// AppliesField reports whether the runtime applies values of a field in a call. It returns false if the runtime drops
// values of the field.
func (r Runtime) AppliesField(by Protocol, c Call, f lifecycle.Field) bool {
	return !slices.ContainsFunc(allRules, func(rule Rule) bool {
		return rule.Field == f && rule.Effect == Drops && rule.applies(r, by, c)
	})
}

// refusalReason returns a message for a value that a rule forbids.
func (r Runtime) refusalReason(rule *Rule, c Call, v lifecycle.Value) string {
	what := v.Field.String()
	if v.Field.Numeric() {
		what += " " + strconv.FormatInt(v.Int, 10)
	}
	text := fmt.Sprintf("%s %s %s in %s", cmp.Or(r.about, "the runtime"), rule.Effect, what, c)
	switch {
	case rule.Effect == Drops:
		return text
	case rule.Max != 0:
		return fmt.Sprintf("%s: it accepts %d to %d", text, rule.Min, rule.Max)
	case rule.NoLimit == AcceptsNoLimit:
		return fmt.Sprintf("%s: it accepts %d and more, or -1 for no limit", text, rule.Min)
	}
	return fmt.Sprintf("%s: it accepts %d and more", text, rule.Min)
}

// applies reports whether the rule applies to a call to a runtime. If the release of the runtime is unknown, a rule
// with Since applies, and a rule with Until does not.
func (rule *Rule) applies(r Runtime, by Protocol, c Call) bool {
	switch {
	case !slices.Contains(rule.Protocols, by), !slices.Contains(rule.Calls, c):
		return false
	case rule.Runtime != EveryRuntime && rule.Runtime != cmp.Or(r.Name, UnknownRuntime):
		return false
	case rule.Unless == r.Name && rule.Unless != "" && r.Release.Known():
		return false
	case rule.BeforeNRI.Known() && !r.NRI.Before(rule.BeforeNRI):
		return false
	case rule.Until.Known() && (!r.Release.Known() || !r.Release.Before(rule.Until)):
		return false
	}
	return !r.Release.Known() || !r.Release.Before(rule.Since)
}

// forbids reports whether the rule does not accept a value.
func (rule *Rule) forbids(v lifecycle.Value) bool {
	switch {
	case rule.Min == 0 && rule.Max == 0:
		return true
	case v.Int == -1 && rule.NoLimit == AcceptsNoLimit:
		return false
	}
	return v.Int < rule.Min || rule.Max != 0 && v.Int > rule.Max
}
