"""`tokenmill report`: what is in a dataset, as a page, as JSON or as a card.

    figures = survey(look_into("data/mine"), SurveyOptions())     read the dataset (survey.py)
    report_page(figures)                                    one self-contained HTML file (page.py)
    comparison_page(before, after)                          two of them (comparison.py)
    card(figures)                                           lines of Markdown (card.py)

It only reads a finished dataset. No run depends on it.
"""
