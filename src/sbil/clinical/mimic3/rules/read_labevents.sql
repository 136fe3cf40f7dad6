-- LABEVENTS: the laboratory values of items.csv. A number is what reads as one: in VALUENUM, or else in VALUE.
SELECT
    try_cast(subject_id AS INTEGER) AS subject_id,
    try_cast(itemid AS INTEGER) AS itemid,
    try_cast(charttime AS TIMESTAMP) AS charttime,
    coalesce(try_cast(valuenum AS DOUBLE), try_cast(value AS DOUBLE)) AS number,
    coalesce(trim(valuenum), '') <> '' OR coalesce(trim(value), '') <> '' AS filled,
    false AS wrong
FROM source
WHERE itemid IN (SELECT itemid::VARCHAR FROM items WHERE events = 'labevents')
