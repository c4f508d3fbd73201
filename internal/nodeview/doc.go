// Package nodeview makes what people and machines see of a node: status, explain,
// the summary for metrics, what-if and the journal. It reads a View that the
// conductor makes, and answers in the types of report/api. It changes nothing.
package nodeview
