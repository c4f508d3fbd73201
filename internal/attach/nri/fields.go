package nri

import (
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// FieldRow describes one field of NRI's messages, for the docs: the lifecycle field to which the NRI field is
// converted, the NRI release that added the NRI field, and whether answers set it.
type FieldRow struct {
	Proto      string // e.g. Container.linux.resources.cpu.shares
	Lifecycle  string // e.g. Container.Resources.CPU.Shares; empty if the field is not converted
	NRIVersion string // the first NRI release that has the field
	Setting    string // name of the lifecycle.Field that the agent can set by this NRI field in an answer; empty if there is none
	Adjust     bool   // decided values set the field in the answer to CreateContainer
	Update     bool   // decided values set the field in updates of existing containers
	Note       string // a remark, or why the field is not converted
}

// conversionRow is one row of a conversion table. It says how a field of the NRI message type P is converted to a field
// of the lifecycle type L. If convert is nil, the field is not converted, and the note says why.
type conversionRow[P, L any] struct {
	proto      string // field name; [] marks a list, {} a map
	lifecycle  string // the name of the field of L; empty if P's field is a message whose fields become fields of L
	nriVersion string // the first NRI release that has the field
	convert    func(p *P, l *L)
	table      nestedTable // the conversion table of the message that the field holds; nil if it holds none
	note       string
}

// conversionTable converts the NRI message type P to the lifecycle type L. The result does not copy the maps and lists
// of strings of the message, but shares them, because no other code uses a message after its conversion.
type conversionTable[P, L any] []conversionRow[P, L]

// nestedTable is a conversion table of any message type.
type nestedTable interface {
	// describe lists the rows of the table, for the docs. The parameter parent is the row of the field that holds the
	// message. The parameter seen maps each table that was listed before to the name of the field where it was listed.
	describe(parent FieldRow, seen map[nestedTable]string) []FieldRow
}

// convert sets the fields of l from the message p. If p is nil, convert does nothing.
func (t *conversionTable[P, L]) convert(p *P, l *L) {
	if p == nil {
		return
	}
	for i := range *t {
		if in := (*t)[i].convert; in != nil {
			in(p, l)
		}
	}
}

// convertOne converts an optional message. It converts nil to nil.
func convertOne[P, L any](t *conversionTable[P, L], p *P) *L {
	if p == nil {
		return nil
	}
	l := new(L)
	t.convert(p, l)
	return l
}

// convertList converts a repeated message.
func convertList[P, L any](t *conversionTable[P, L], in []*P) []L {
	if len(in) == 0 {
		return nil
	}
	out := make([]L, len(in))
	for i, p := range in {
		t.convert(p, &out[i])
	}
	return out
}

// convertStrings converts each element of a repeated message with toString.
func convertStrings[P any](in []P, toString func(P) string) []string {
	if len(in) == 0 {
		return nil
	}
	out := make([]string, len(in))
	for i, p := range in {
		out[i] = toString(p)
	}
	return out
}

// optionalMessage is any of NRI's Optional messages, such as OptionalInt64.
type optionalMessage[T any, W any] interface {
	*W
	GetValue() T
}

// toOpt converts an Optional message to an Opt. It converts nil to an Opt that is not set.
func toOpt[T comparable, W any, PW optionalMessage[T, W]](w PW) lifecycle.Opt[T] {
	if w == nil {
		return lifecycle.Opt[T]{}
	}
	return lifecycle.Some(w.GetValue())
}

// describe returns a row for each field of the table, and the rows of nested tables after the row of the field that
// holds the message. The parameter parent is the row of the field above. If a nested table is in seen, its rows were
// listed before: then describe adds a note that names the first listing, and does not repeat the rows.
func (t *conversionTable[P, L]) describe(parent FieldRow, seen map[nestedTable]string) []FieldRow {
	seen[t] = parent.Proto
	var rows []FieldRow
	for _, f := range *t {
		r := FieldRow{Proto: parent.Proto + "." + f.proto, NRIVersion: laterRelease(f.nriVersion, parent.NRIVersion), Note: f.note}
		if f.convert != nil {
			r.Lifecycle = strings.TrimSuffix(parent.Lifecycle+"."+f.lifecycle, ".")
		}
		if first, again := seen[f.table]; f.table != nil && again {
			r.Note = strings.TrimPrefix(r.Note+"; fields as in "+first, "; ")
			rows = append(rows, r)
			continue
		}
		rows = append(rows, r)
		if f.table != nil {
			rows = append(rows, f.table.describe(r, seen)...)
		}
	}
	return rows
}

// FieldRows lists every field of the messages that a runtime sends about pods and containers, in the order of the
// protocol. It is for the docs.
func FieldRows() []FieldRow {
	seen := map[nestedTable]string{}
	rows := containerTable.describe(FieldRow{Proto: "Container", Lifecycle: "Container"}, seen)
	rows = append(rows, podTable.describe(FieldRow{Proto: "PodSandbox", Lifecycle: "Pod"}, seen)...)
	for i := range rows {
		for _, s := range settableFields {
			if rows[i].Proto != "Container."+s.proto {
				continue
			}
			rows[i].Setting, rows[i].Adjust, rows[i].Update = s.field.String(), true, s.resource != nil
			rows[i].Note = strings.TrimPrefix(rows[i].Note+"; "+s.note, "; ")
		}
	}
	for _, s := range settableFields {
		if s.adjustOnlySince != "" {
			rows = append(rows, FieldRow{Proto: "ContainerAdjustment." + s.proto, NRIVersion: s.adjustOnlySince, Setting: s.field.String(), Adjust: true, Note: s.note})
		}
	}
	return rows
}
