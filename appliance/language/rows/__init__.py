"""Tables, lists, boxes and dated lines of notes as rows, and the questions that count, add up and compare them."""
