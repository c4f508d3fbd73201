package bench

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"google.golang.org/protobuf/proto"
)

// sample is a list of times of one operation.
type sample []time.Duration

// at returns the p-th percentile.
func (s sample) at(p float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(int(p/100*float64(len(sorted))), len(sorted)-1)]
}

// over returns the ratio of two times.
func over(a, b time.Duration) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// report is printed after all measurements.
type report struct{ sections []*section }

// section is one table of the report.
type section struct {
	title, note string
	rows        [][]string
}

var table report

// section starts a table, and replaces one with the same title.
func (r *report) section(title string, head ...string) *section {
	r.sections = slices.DeleteFunc(r.sections, func(s *section) bool { return s.title == title })
	s := &section{title: title, rows: [][]string{head}}
	r.sections = append(r.sections, s)
	return s
}

func (s *section) row(cells ...any) {
	var out []string
	for _, c := range cells {
		switch v := c.(type) {
		case time.Duration:
			out = append(out, microseconds(v))
		case float64:
			out = append(out, fmt.Sprintf("%.2f", v))
		default:
			out = append(out, fmt.Sprint(v))
		}
	}
	s.rows = append(s.rows, out)
}

// microseconds formats a time for the tables.
func microseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f", float64(d)/float64(time.Microsecond))
}

// String returns the whole report.
func (r *report) String() string {
	if len(r.sections) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\nTimes in µs, %d CPUs, %s.\n", runtime.NumCPU(), runtime.Version())
	for _, s := range r.sections {
		fmt.Fprintf(&b, "\n%s\n", s.title)
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
		for _, row := range s.rows {
			fmt.Fprintln(w, strings.Join(row, "\t")+"\t")
		}
		_ = w.Flush()
		if s.note != "" {
			fmt.Fprintln(&b, s.note)
		}
	}
	return b.String()
}

func size(m proto.Message) int { return proto.Size(m) }
