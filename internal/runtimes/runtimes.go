package runtimes

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Protocol is a protocol by which Trimtab sends values to a runtime.
type Protocol uint8

// The protocols.
const (
	NRI Protocol = iota
	CRI
)

// String returns the name of the protocol.
func (w Protocol) String() string { return [...]string{"NRI", "CRI"}[w] }

// Call is a kind of call by which Trimtab sends values to a runtime.
type Call uint8

// The calls.
const (
	// CreateCall is the creation of a container: the answer to NRI's CreateContainer, or the CRI's CreateContainer.
	CreateCall Call = iota
	// KubeletUpdate is an update request of the kubelet for a container, in which Trimtab changes resources.
	KubeletUpdate
	// AgentUpdate is an update request for a container that the agent itself sends.
	AgentUpdate
)

// String returns the words for the call in messages.
func (c Call) String() string {
	return [...]string{"the creation of a container", "a kubelet's update", "an update that the agent sends"}[c]
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

// NoLimit is a property of a rule that sets a smallest number: whether the runtime also accepts the value -1, which
// means "no limit".
type NoLimit bool

// AcceptsNoLimit means that the runtime accepts -1, although -1 is below the smallest accepted number.
const AcceptsNoLimit NoLimit = true

// Rule describes a value, or a range of values, that a runtime does not accept.
type Rule struct {
	Runtime string // one of the names of runtimes in this package
	Unless  string // the rule does not apply to this runtime, if the runtime's release is known; "" for none
	// Since is the first release of the runtime to which the rule applies. Until is the first release to which the rule
	// no longer applies. BeforeNRI is the first release of the runtime's NRI library for which the rule no longer
	// applies. A zero Version means no limit.
	Since, Until, BeforeNRI Version
	// Protocols and Calls are the protocols and the kinds of calls to which the rule applies.
	Protocols []Protocol
	Calls     []Call
	Field     lifecycle.Field // the field of the value that the runtime does not accept
	// Min and Max are the smallest and the greatest number that the runtime accepts. If both are 0, the runtime
	// accepts no value.
	Min, Max int64
	NoLimit  NoLimit
	Effect   Effect
	Source   string // the code, message or document that shows the rule
}

// Rules returns all rules, for the docs.
func Rules() []Rule { return slices.Clone(allRules) }

// Releases returns a text with the releases to which the rule applies, for the docs.
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

// Description returns a text such as "refuses values below 2": what the runtime does, and with which values. The name
// of the runtime is not in the text.
func (rule Rule) Description() string {
	switch {
	case rule.Min == 0 && rule.Max == 0:
		return rule.Effect.String() + " every value"
	case rule.Max != 0:
		return fmt.Sprintf("%s values below %d or above %d", rule.Effect, rule.Min, rule.Max)
	case rule.NoLimit == AcceptsNoLimit:
		return fmt.Sprintf("%s values below %d, except -1 (no limit)", rule.Effect, rule.Min)
	}
	return fmt.Sprintf("%s values below %d, and -1 (no limit)", rule.Effect, rule.Min)
}

// Runtime is a runtime and its release.
type Runtime struct {
	Name        string // one of the names of runtimes in this package
	Release     Version
	NRI         Version // the release of the NRI library in the runtime; zero if unknown
	displayName string  // the name and release as the runtime reports them, for messages
}

// Identify returns the runtime that reports this name and release. The parameter nri is the release of the runtime's
// NRI library; zero if this release is unknown, or if NRI is not in use.
func Identify(name, release string, nri Version) Runtime {
	return Runtime{
		Name: cmp.Or(reportedNames[strings.ToLower(name)], UnknownRuntime), Release: ParseVersion(release), NRI: nri,
		displayName: cmp.Or(strings.TrimSpace(name+" "+release), "the runtime"),
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
// such values.
func (r Runtime) AppliesField(by Protocol, c Call, f lifecycle.Field) bool {
	return !slices.ContainsFunc(allRules, func(rule Rule) bool {
		return rule.Field == f && rule.Effect == Drops && rule.applies(r, by, c)
	})
}

// refusalReason returns a message for a value that a rule forbids. The message says that the runtime refuses the value,
// or drops it.
func (r Runtime) refusalReason(rule *Rule, c Call, v lifecycle.Value) string {
	what := v.Field.String()
	if v.Field.IsNumeric() {
		what += " " + strconv.FormatInt(v.Int, 10)
	}
	text := fmt.Sprintf("%s %s %s in %s", cmp.Or(r.displayName, "the runtime"), rule.Effect, what, c)
	switch {
	case rule.Effect == Drops:
		return text
	case rule.Max != 0:
		return fmt.Sprintf("%s: it accepts %d to %d", text, rule.Min, rule.Max)
	case rule.NoLimit == AcceptsNoLimit:
		return fmt.Sprintf("%s: it accepts %d and more, and -1 for no limit", text, rule.Min)
	}
	return fmt.Sprintf("%s: it accepts %d and more", text, rule.Min)
}

// applies reports whether the rule applies to a call to a runtime. If the release of the runtime is unknown, rules
// with Since apply, and rules with Until do not apply.
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

// forbids reports whether the runtime does not accept a value, according to the rule.
func (rule *Rule) forbids(v lifecycle.Value) bool {
	switch {
	case rule.Min == 0 && rule.Max == 0:
		return true
	case v.Int == -1 && rule.NoLimit == AcceptsNoLimit:
		return false
	}
	return v.Int < rule.Min || rule.Max != 0 && v.Int > rule.Max
}
