// Package nodeview says what people and machines are told of a node: status, explain,
// the summary for metrics, what-if and the journal. It reads a View that the
// conductor hands it, and answers in the words of report/api. It changes nothing.
package nodeview
