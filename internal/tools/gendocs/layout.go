package main

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// columns is the maximum width of a line.
const columns = 120

// blockMark matches a word that starts a list, heading or quotation at the beginning of a Markdown line.
var blockMark = regexp.MustCompile(`^([-+*#>]+|[0-9]+[.)])$`)

// wrap breaks text into lines of at most columns, the first after lead and all
// others after rest. A code span stays on one line.
func wrap(lead, rest, text string) string {
	var b strings.Builder
	line, empty := lead, true
	for _, word := range words(text) {
		fits := utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= columns
		switch {
		case empty:
			line += word
		case fits:
			line += " " + word
		default:
			b.WriteString(line + "\n")
			line = rest + word
		}
		empty = false
	}
	b.WriteString(line + "\n")
	return b.String()
}

// words splits text at its spaces, except in code spans and before marks.
func words(text string) []string {
	var list []string
	for _, part := range strings.Fields(text) {
		if last := len(list) - 1; last >= 0 && (strings.Count(list[last], "`")%2 == 1 || blockMark.MatchString(part)) {
			list[last] += " " + part
			continue
		}
		list = append(list, part)
	}
	return list
}

// item formats an entry of a list.
func item(text string) string { return wrap("* ", "  ", text) }

// paragraph formats text between blank lines.
func paragraph(text string) string { return wrap("", "", text) }

// joinNonEmpty joins the texts that are not empty.
func joinNonEmpty(separator string, list ...string) string {
	var some []string
	for _, s := range list {
		if s != "" {
			some = append(some, s)
		}
	}
	return strings.Join(some, separator)
}

// withLabel returns "name value", or "" without a value.
func withLabel(name, value string) string {
	if value == "" {
		return ""
	}
	return name + " " + value
}

// sentence adds a full stop to text if it has no end.
func sentence(text string) string {
	if text == "" || strings.HasSuffix(text, ".") {
		return text
	}
	return text + "."
}

// blockStart matches the beginning of a block that is not a paragraph.
var blockStart = regexp.MustCompile("^(\\* |\\||#|<|```|$)")

// reflowed wraps the paragraphs of a page. It leaves lists, tables, headings and code as they are.
func reflowed(make func() (string, error)) func() (string, error) {
	return func() (string, error) {
		page, err := make()
		if err != nil {
			return "", err
		}
		blocks := strings.Split(page, "\n\n")
		inCode := false
		for i, block := range blocks {
			if !inCode && !blockStart.MatchString(block) {
				blocks[i] = strings.TrimSuffix(paragraph(block), "\n")
			}
			if strings.Count(block, "```")%2 == 1 {
				inCode = !inCode
			}
		}
		return strings.TrimRight(strings.Join(blocks, "\n\n"), "\n") + "\n", nil
	}
}
