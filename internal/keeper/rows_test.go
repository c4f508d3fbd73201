package keeper

import (
	"cmp"
	"slices"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Row is one line of the table.
type Row struct {
	Owner    string
	Dir      string
	File     string
	Parent   bool
	Value    lifecycle.Value
	Want     string // the value as kernel text
	Kernel   string
	Original string
	Written  bool // Original is known
	State    State
	Foreign  uint64 // foreign writes that were repaired
	Err      error
}

// Rows returns the table, by directory and file.
func (r *rig) Rows() []Row {
	k := r.Keeper
	k.mu.Lock()
	rows := make([]Row, 0, len(k.table.rows))
	for _, r := range k.table.rows {
		row := Row{
			Owner: r.target.Owner, Dir: r.dir, File: r.handle.Path, Parent: r.target.Parent, Value: r.value, Want: r.text,
			Kernel: r.kernel, Written: r.history.Original != nil,
			State: r.state, Foreign: r.foreign.writes, Err: r.err,
		}
		if row.Written {
			row.Original = *r.history.Original
		}
		rows = append(rows, row)
	}
	k.mu.Unlock()
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Dir, b.Dir), cmp.Compare(a.Value.Field, b.Value.Field), cmp.Compare(a.Value.Key, b.Value.Key))
	})
	return rows
}
