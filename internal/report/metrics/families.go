package metrics

// family is one metric. The page, the docs and the tests are generated from it.
type family struct {
	name   string
	kind   string // counter, gauge or histogram
	labels []string
	help   string
	// values describes for users the possible values of the labels, one clause for each label.
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
	// Names are the names of the labels.
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
