// SPDX-License-Identifier: Apache-2.0

// Usage: render_chart CHART PATTERN <INPUT: prints what the templates of the chart whose names match PATTERN make of the values in INPUT,
// a JSON object with Values, Release and Chart.
// Helm's own engine is Go's text/template; of the functions that Helm adds these are the ones that the chart calls. What toYaml prints is the same YAML in
// another style: compare objects, not texts.
package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"text/template"
)

type files struct{ chart string }

func (f files) Get(name string) string {
	text, err := os.ReadFile(filepath.Join(f.chart, name))
	check(err)
	return string(text)
}

func (f files) Glob(pattern string) map[string]string {
	found := map[string]string{}
	paths, err := filepath.Glob(filepath.Join(f.chart, pattern))
	check(err)
	for _, name := range paths {
		relative, err := filepath.Rel(f.chart, name)
		check(err)
		found[relative] = f.Get(relative)
	}
	return found
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func toJSON(value any) string {
	text, err := json.Marshal(value)
	check(err)
	return string(text)
}

// An item or a pair a line, with JSON inside, which is YAML too.
func toPrettyJSON(value any) string {
	text, err := json.MarshalIndent(value, "", "  ")
	check(err)
	return string(text)
}

func fromJSON(text string) map[string]any {
	var object map[string]any
	check(json.Unmarshal([]byte(text), &object))
	return object
}

func toYAML(value any) string {
	var lines []string
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			lines = append(lines, "- "+toJSON(item))
		}
	case map[string]any:
		keys := make([]string, 0, len(value))
		for key := range value {
			keys = append(keys, key)
		}
		sort.Strings(keys)
		for _, key := range keys {
			lines = append(lines, toJSON(key)+": "+toJSON(value[key]))
		}
	}
	if len(lines) == 0 {
		return toJSON(value)
	}
	return strings.Join(lines, "\n")
}

func indent(spaces int, text string) string {
	margin := strings.Repeat(" ", spaces)
	return margin + strings.ReplaceAll(text, "\n", "\n"+margin)
}

func orDefault(fallback, value any) any {
	if truth, _ := template.IsTrue(value); truth {
		return value
	}
	return fallback
}

func ternary(yes, no any, truth bool) any {
	if truth {
		return yes
	}
	return no
}

func truncated(length int, text string) string {
	if len(text) > length {
		return text[:length]
	}
	return text
}

func float(value any) float64 {
	number, err := strconv.ParseFloat(fmt.Sprint(value), 64)
	check(err)
	return number
}

func set(object map[string]any, key string, value any) map[string]any {
	object[key] = value
	return object
}

func integer(value any) int {
	switch value := value.(type) {
	case int:
		return value
	case float64:
		return int(value)
	case string:
		number, err := strconv.Atoi(value)
		check(err)
		return number
	}
	panic(fmt.Sprintf("no number: %v", value))
}

func larger(a, b any) int {
	if integer(a) > integer(b) {
		return integer(a)
	}
	return integer(b)
}

func product(values ...any) int {
	made := 1
	for _, value := range values {
		made *= integer(value)
	}
	return made
}

func replacedAll(pattern, text, by string) string {
	return regexp.MustCompile(pattern).ReplaceAllString(text, by)
}

var functions = template.FuncMap{
	"base":       path.Base,
	"contains":   func(part, text string) bool { return strings.Contains(text, part) },
	"default":    orDefault,
	"dict":       dict,
	"indent":     indent,
	"div":        func(a, b any) int { return integer(a) / integer(b) },
	"get":        func(from map[string]any, key string) any { return from[key] },
	"float64":    float,
	"fromJson":   fromJSON,
	"int":        integer,
	"list":       func(items ...any) []any { return items },
	"max":        larger,
	"mod":        func(a, b any) int { return integer(a) % integer(b) },
	"mul":        product,
	"nindent":    func(spaces int, text string) string { return "\n" + indent(spaces, text) },
	"replace":    func(old, new, text string) string { return strings.ReplaceAll(text, old, new) },
	"quote":      func(value any) string { return toJSON(fmt.Sprint(value)) },
	"regexFind":  func(pattern, text string) string { return regexp.MustCompile(pattern).FindString(text) },
	"regexReplaceAll": replacedAll,
	"set":        set,
	"sha256sum":  func(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) },
	"sub":        func(a, b any) int { return integer(a) - integer(b) },
	"ternary":    ternary,
	"toString":   func(value any) string { return fmt.Sprint(value) },
	"toJson":     toJSON,
	"toPrettyJson": toPrettyJSON,
	"toYaml":     toYAML,
	"trimSuffix": func(suffix, text string) string { return strings.TrimSuffix(text, suffix) },
	"trunc":      truncated,
}

func dict(pairs ...any) map[string]any {
	made := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		made[pairs[i].(string)] = pairs[i+1]
	}
	return made
}

func main() {
	chart := os.Args[1]
	var input map[string]any
	check(json.NewDecoder(os.Stdin).Decode(&input))
	input["Files"] = files{chart}
	all := template.New(chart).Option("missingkey=zero").Funcs(functions)
	all.Funcs(template.FuncMap{"include": func(name string, data any) (string, error) {
		var output strings.Builder
		err := all.ExecuteTemplate(&output, name, data)
		return output.String(), err
	}})
	paths, err := filepath.Glob(filepath.Join(chart, "templates/*"))
	check(err)
	for _, name := range paths {
		text, err := os.ReadFile(name)
		check(err)
		_, err = all.New(filepath.Base(name)).Parse(string(text))
		check(err)
	}
	for _, name := range paths {
		if isAskedFor, err := filepath.Match(os.Args[2], filepath.Base(name)); !isAskedFor {
			check(err)
			continue
		}
		fmt.Println("---")
		check(all.ExecuteTemplate(os.Stdout, filepath.Base(name), input))
	}
}
