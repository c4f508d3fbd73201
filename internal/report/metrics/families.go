package metrics

// family is one metric: what the page, the docs and the tests are made from.
type family struct {
	name   string
	kind   string // counter, gauge or histogram
	labels []string
	help   string
	// values says for people what the labels may be, one clause per label.
	values string
}

const (
	counter   = "counter"
	gauge     = "gauge"
	histogram = "histogram"
)

// Row is a metric as the docs print it.
type Row struct {
	Name, Kind, Labels, Help string
	// Names are the labels' names.
	Names []string
}

// Rows returns the table of all metrics.
func Rows() []Row {
	all := New(Build{}, Labels{}).counted
	for _, f := range ofState {
		all = append(all, f.family)
	}
	rows := make([]Row, len(all))
	for i, f := range all {
		rows[i] = Row{Name: f.name, Kind: f.kind, Labels: f.values, Help: f.help, Names: f.labels}
	}
	return rows
}
